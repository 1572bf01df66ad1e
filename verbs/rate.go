package verbs

// StaticRate is the code of the highest rate of packets to a destination, AHAttr.StaticRate (enum ibv_rate). RoCE
// adapters accept and ignore it. The software device sends no faster; the bytes of whole IP packets count.
type StaticRate uint8

// The rates (IBV_RATE_*).
const (
	RateMax      StaticRate = 0 // the rate of the port
	Rate2500Mbps StaticRate = 2 // IBV_RATE_2_5_GBPS
	Rate5Gbps    StaticRate = 5
	Rate10Gbps   StaticRate = 3
	Rate20Gbps   StaticRate = 6
	Rate30Gbps   StaticRate = 4
	Rate40Gbps   StaticRate = 7
	Rate60Gbps   StaticRate = 8
	Rate80Gbps   StaticRate = 9
	Rate120Gbps  StaticRate = 10
	Rate14Gbps   StaticRate = 11
	Rate56Gbps   StaticRate = 12
	Rate112Gbps  StaticRate = 13
	Rate168Gbps  StaticRate = 14
	Rate25Gbps   StaticRate = 15
	Rate100Gbps  StaticRate = 16
	Rate200Gbps  StaticRate = 17
	Rate300Gbps  StaticRate = 18
	Rate28Gbps   StaticRate = 19
	Rate50Gbps   StaticRate = 20
	Rate400Gbps  StaticRate = 21
	Rate600Gbps  StaticRate = 22
	Rate800Gbps  StaticRate = 23
	Rate1200Gbps StaticRate = 24
)

// staticRates holds the names, the speeds in Mb/s with the encoding of the lanes, and the multiples of 2.5 Gb/s; 0:
// none.
var staticRates = [...]struct {
	name string
	mbps int
	mult int
}{
	RateMax:      {"MAX", 0, 0},
	Rate2500Mbps: {"2_5_GBPS", 2500, 1},
	Rate5Gbps:    {"5_GBPS", 5000, 2},
	Rate10Gbps:   {"10_GBPS", 10000, 4},
	Rate20Gbps:   {"20_GBPS", 20000, 8},
	Rate30Gbps:   {"30_GBPS", 30000, 12},
	Rate40Gbps:   {"40_GBPS", 40000, 16},
	Rate60Gbps:   {"60_GBPS", 60000, 24},
	Rate80Gbps:   {"80_GBPS", 80000, 32},
	Rate120Gbps:  {"120_GBPS", 120000, 48},
	Rate14Gbps:   {"14_GBPS", 14062, 0},
	Rate56Gbps:   {"56_GBPS", 56250, 0},
	Rate112Gbps:  {"112_GBPS", 112500, 0},
	Rate168Gbps:  {"168_GBPS", 168750, 0},
	Rate25Gbps:   {"25_GBPS", 25781, 0},
	Rate100Gbps:  {"100_GBPS", 103125, 0},
	Rate200Gbps:  {"200_GBPS", 206250, 0},
	Rate300Gbps:  {"300_GBPS", 309375, 0},
	Rate28Gbps:   {"28_GBPS", 28125, 11},
	Rate50Gbps:   {"50_GBPS", 53125, 20},
	Rate400Gbps:  {"400_GBPS", 425000, 160},
	Rate600Gbps:  {"600_GBPS", 637500, 240},
	Rate800Gbps:  {"800_GBPS", 850000, 320},
	Rate1200Gbps: {"1200_GBPS", 1275000, 480},
}

// String returns the name without IBV_RATE_.
func (r StaticRate) String() string {
	if int(r) < len(staticRates) && staticRates[r].name != "" {
		return staticRates[r].name
	}
	return nameOf("StaticRate", nil, int64(r))
}

// Mbps returns the rate in Mb/s, -1 for RateMax and unknown rates (ibv_rate_to_mbps).
func (r StaticRate) Mbps() int {
	if int(r) < len(staticRates) && staticRates[r].mbps > 0 {
		return staticRates[r].mbps
	}
	return -1
}

// Mult returns the rate as a multiple of 2.5 Gb/s, -1 for an undefined rate (ibv_rate_to_mult).
func (r StaticRate) Mult() int {
	if int(r) < len(staticRates) && staticRates[r].mult > 0 {
		return staticRates[r].mult
	}
	return -1
}

// StaticRateOfMbps returns the rate with the given speed in Mb/s, RateMax if there is none (mbps_to_ibv_rate).
func StaticRateOfMbps(mbps int) StaticRate {
	for r, s := range staticRates {
		if s.mbps == mbps {
			return StaticRate(r)
		}
	}
	return RateMax
}

// StaticRateOfMult returns the rate with the given multiple of 2.5 Gb/s, RateMax if there is none (mult_to_ibv_rate).
func StaticRateOfMult(mult int) StaticRate {
	for r, s := range staticRates {
		if s.mult == mult {
			return StaticRate(r)
		}
	}
	return RateMax
}
