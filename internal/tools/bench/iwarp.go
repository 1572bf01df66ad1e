package bench

import (
	"runtime"

	"github.com/verbena-rdma/verbena/internal/tools/endpoint"
)

// iwarp measures iWARP devices, on Linux: TCP with and without their headers in the same rounds.
func iwarp(c *config) (all []result, err error) {
	if runtime.GOOS != "linux" {
		return nil, nil
	}
	write := result{Name: "iwarp-write", What: "iwarp: RC WRITE of 1 MiB, throughput", BaseOf: "TCP", Unit: "bytes/s",
		Target: 0.9}
	crc := result{Name: "iwarp-write-crc", What: "iwarp: RC WRITE of 1 MiB with CRCs, throughput", BaseOf: "TCP",
		Unit: "bytes/s", Target: 0.7}
	trip := result{Name: "iwarp-latency", What: "iwarp: RC SEND of 8 bytes, round trip", BaseOf: "TCP", Unit: "s",
		Target: 1.3, AtMost: true}
	for _, m := range []struct {
		r   *result
		crc string
		of  func(*endpoint.Pair) error
	}{
		{&write, "0", func(p *endpoint.Pair) error { return write.throughput(c, p) }},
		{&crc, "1", func(p *endpoint.Pair) error { return crc.throughput(c, p) }},
		{&trip, "0", func(p *endpoint.Pair) error {
			tcp, err := p.DialTCP(small, true)
			if err != nil {
				return err
			}
			defer tcp.Close()
			return trip.roundTrips(c, p, tcp)
		}},
	} {
		if err := overIWARP(m.crc, m.of); err != nil {
			return nil, err
		}
		all = append(all, *m.r)
	}
	return all, nil
}

// overIWARP runs do with both processes connected over iWARP; crc is 1 for CRCs.
func overIWARP(crc string, do func(*endpoint.Pair) error) error {
	return withEnv("VERBENA_TRANSPORT", "iwarp", func() error {
		return withEnv("VERBENA_IWARP_CRC", crc, func() error {
			return pairBy((*endpoint.Pair).ConnectIWARP, endpoint.Options{QPs: 1, Depth: sendWindow, Bytes: large}, do)
		})
	})
}
