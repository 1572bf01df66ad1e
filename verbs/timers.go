package verbs

import "time"

// rnrTens is what the RNR timer codes mean in units of 10 us (IBTA volume 1, table 45). The manual's table has
// other values for the codes 6 to 21, which are wrong.
var rnrTens = [32]int{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// RNRDelay is the time that a MinRNRTimer code, 0..31, stands for: how long a peer waits after it met a queue without
// receives.
func RNRDelay(code uint8) time.Duration {
	return time.Duration(rnrTens[code&31]) * 10 * time.Microsecond
}

// AckTimeout is the time that a Timeout code, 0..31, stands for: 4.096 us x 2^code; 0 for code 0, which waits for
// ever.
func AckTimeout(code uint8) time.Duration {
	if code == 0 {
		return 0
	}
	return 4096 * time.Nanosecond << (code & 31)
}
