package shm

import (
	"testing"
)

// Memory in no file is read with system calls only where that is fast, or asked for.
func TestSlowReadsAreNotUsed(t *testing.T) {
	defer func(f func() bool) { readsFast = f }(readsFast)
	for _, c := range []struct {
		env                 string
		fast, want, inPlace bool
	}{
		{"", true, true, true}, {"", false, false, true}, {"1", false, true, true}, {"0", true, false, false},
		{"yes", false, false, true},
	} {
		t.Setenv(directEnv, c.env)
		readsFast = func() bool { return c.fast }
		if got := readsAllowed(); got != c.want {
			t.Errorf("%q, fast %v: system calls %v, want %v", c.env, c.fast, got, c.want)
		}
		if got := directAllowed(); got != c.inPlace {
			t.Errorf("%q: in place %v, want %v", c.env, got, c.inPlace)
		}
	}
}

// needReads skips a test of reads from the memory of another process where the kernel permits none.
func needReads(t *testing.T) {
	t.Helper()
	if read, _ := measureReads(); read == 0 {
		t.Skip("the kernel does not permit process_vm_readv")
	}
}

// The measurement measures: a copy takes time, and a read, which the kernel permits within a process, does too.
func TestReadsAreMeasured(t *testing.T) {
	needReads(t)
	read, copied := measureReads()
	t.Logf("%d bytes: a read takes %v, a copy %v", readSize, read, copied)
	if copied <= 0 {
		t.Errorf("a copy takes %v", copied)
	}
	if read < 0 {
		t.Errorf("a read takes %v", read)
	}
}
