package soft_test

import (
	"testing"

	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

func benchEach(b *testing.B, f func(b *testing.B, x, y *end)) {
	for i := range networks {
		b.Run(networks[i].name, func(b *testing.B) {
			ends := newEnds(b, &networks[i], 2, nil)
			f(b, ends[0], ends[1])
		})
	}
}

// check is must for measured loops, in which the call of Helper takes too long.
func check(b *testing.B, err error) {
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkPingPong: one message each way, both sides polling.
func BenchmarkPingPong(b *testing.B) {
	benchEach(b, func(b *testing.B, x, y *end) {
		qx, qy := connect(x, y, verbs.QPTypeRC, nil)
		pong := func(e *end, qp *verbs.QP, n int, first bool) {
			var wcs [4]verbs.WC
			recv := []verbs.SGE{e.mr.SGE(0, 64)}
			send := []verbs.SGE{e.mr.SGE(64, 8)}
			for i := range n {
				if first || i > 0 {
					check(b, qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: send}))
				}
				for got := 0; got < 1; {
					k, err := e.cq.Poll(wcs[:])
					check(b, err)
					for j := range wcs[:k] {
						check(b, wcs[j].Err())
						if wcs[j].Opcode == verbs.WCRecv {
							check(b, qp.PostRecv(verbs.RecvWR{SGList: recv}))
							got++
						}
					}
				}
			}
			if !first {
				must(b, qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: send}))
			}
		}
		for range 8 {
			must(b, qx.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{x.mr.SGE(0, 64)}}))
			must(b, qy.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{y.mr.SGE(0, 64)}}))
		}
		b.ReportAllocs()
		b.ResetTimer()
		done := make(chan bool)
		go func() { pong(y, qy, b.N, false); close(done) }()
		pong(x, qx, b.N, true)
		<-done
	})
}

// BenchmarkWrite1M: WRITEs of 1 MiB, up to 4 outstanding; the passive side does not poll.
func BenchmarkWrite1M(b *testing.B) {
	benchEach(b, func(b *testing.B, x, y *end) {
		qx, _ := connect(x, y, verbs.QPTypeRC, nil)
		b.SetBytes(1 << 20)
		b.ReportAllocs()
		b.ResetTimer()
		writes(b, x, qx, y, 1<<20, b.N, 4)
	})
}

// BenchmarkWriteRate: WRITEs of 8 bytes, up to 64 outstanding.
func BenchmarkWriteRate(b *testing.B) {
	benchEach(b, func(b *testing.B, x, y *end) {
		qx, _ := connect(x, y, verbs.QPTypeRC, nil)
		b.ReportAllocs()
		b.ResetTimer()
		writes(b, x, qx, y, 8, b.N, 64)
	})
}

// writes posts n WRITEs of size bytes, up to depth outstanding.
func writes(b *testing.B, x *end, qx *verbs.QP, y *end, size, n, depth int) {
	var wcs [64]verbs.WC
	sge := []verbs.SGE{x.mr.SGE(0, size)}
	for posted, done := 0, 0; done < n; {
		for posted < n && posted-done < depth {
			check(b, qx.PostSend(verbs.SendWR{
				Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: sge, RemoteAddr: y.mr.Addr(), RKey: y.mr.RKey(),
			}))
			posted++
		}
		k, err := x.cq.Poll(wcs[:])
		check(b, err)
		for i := range wcs[:k] {
			check(b, wcs[i].Err())
		}
		done += k
	}
}

// BenchmarkEventPingPong: one message each way; both sides block until a completion event.
func BenchmarkEventPingPong(b *testing.B) {
	benchEach(b, func(b *testing.B, x, y *end) {
		type side struct {
			*end
			ch *verbs.CompChannel
			qp *verbs.QP
		}
		newSide := func(e *end) *side {
			s := &side{end: e, ch: get(e.ctx.CreateCompChannel())(b)}
			b.Cleanup(func() { must(b, s.ch.Close()) })
			cq := get(e.ctx.CreateCQ(64, &verbs.CQOptions{Channel: s.ch}))(b)
			b.Cleanup(func() { must(b, cq.Close()) })
			s.end = &end{tb: b, ctx: e.ctx, pd: e.pd, cq: cq, mr: e.mr, buf: e.buf}
			s.qp = s.end.qp(verbs.QPTypeRC, nil)
			return s
		}
		sx, sy := newSide(x), newSide(y)
		join(b, sx.qp, sy.qp, nil)
		run := func(s *side, n int, first bool) {
			var wcs [8]verbs.WC
			recv, send := []verbs.SGE{s.mr.SGE(0, 64)}, []verbs.SGE{s.mr.SGE(64, 8)}
			for range 8 {
				must(b, s.qp.PostRecv(verbs.RecvWR{SGList: recv}))
			}
			must(b, s.cq.ReqNotify(false))
			if first {
				must(b, s.qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: send}))
			}
			for got := 0; got < n; {
				if _, err := s.ch.GetEvent(b.Context()); err != nil {
					b.Error(err)
					return
				}
				s.cq.AckEvents(1)
				must(b, s.cq.ReqNotify(false))
				for {
					k, err := s.cq.Poll(wcs[:])
					must(b, err)
					if k == 0 {
						break
					}
					for _, wc := range wcs[:k] {
						must(b, wc.Err())
						if wc.Opcode == verbs.WCRecv {
							got++
							must(b, s.qp.PostRecv(verbs.RecvWR{SGList: recv}))
							if got < n || !first {
								must(b, s.qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: send}))
							}
						}
					}
				}
			}
		}
		b.ReportAllocs()
		b.ResetTimer()
		done := make(chan bool)
		go func() { run(sy, b.N, false); close(done) }()
		run(sx, b.N, true)
		<-done
	})
}

// BenchmarkBothEnds: the time of a SEND of 8 bytes at both ends together: one goroutine runs them alternately, 64
// messages at a time.
func BenchmarkBothEnds(b *testing.B) {
	for i := range networks {
		b.Run(networks[i].name, func(b *testing.B) {
			ends := newEnds(b, &networks[i], 2, func(c *soft.Config) { c.Manual, c.Shards = true, 1 })
			bothEnds(b, ends[0], ends[1])
		})
	}
}

func bothEnds(b *testing.B, x, y *end) {
	const window = 64
	qx, qy := connect(x, y, verbs.QPTypeRC, nil)
	var wrs [window]verbs.SendWR
	var recvs [window]verbs.RecvWR
	sge := []verbs.SGE{y.mr.SGE(0, 64)}
	for i := range wrs {
		wrs[i] = verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled | verbs.SendInline, Inline: make([]byte, 8)}
		recvs[i] = verbs.RecvWR{SGList: sge}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += window {
		check(b, qy.PostRecv(recvs[:]...))
		check(b, qx.PostSend(wrs[:]...))
		drain(b, y, x, window)
		drain(b, x, y, window)
	}
}

// drain takes n completions of x out, while both devices run.
func drain(b *testing.B, x, y *end, n int) {
	var wcs [64]verbs.WC
	for got := 0; got < n; {
		k, err := x.cq.Poll(wcs[:])
		check(b, err)
		for j := range wcs[:k] {
			check(b, wcs[j].Err())
		}
		got += k
		x.dev.Step()
		y.dev.Step()
	}
}

// BenchmarkCapture: WRITEs of 64 KiB without a capture, with VERBENA_PCAP, and with VERBENA_PCAP_SNAPLEN=512. The
// file is /dev/null, so that no disk is measured; the ratios are in docs/performance.md.
func BenchmarkCapture(b *testing.B) {
	for _, c := range []struct{ name, file, snap string }{{"off", "", ""}, {"on", "/dev/null", ""},
		{"on-512", "/dev/null", "512"}} {
		b.Run(c.name, func(b *testing.B) {
			b.Setenv("VERBENA_PCAP", c.file)
			b.Setenv("VERBENA_PCAP_SNAPLEN", c.snap)
			benchEach(b, func(b *testing.B, x, y *end) {
				qx, _ := connect(x, y, verbs.QPTypeRC, nil)
				b.SetBytes(64 << 10)
				b.ReportAllocs()
				b.ResetTimer()
				writes(b, x, qx, y, 64<<10, b.N, 8)
			})
		})
	}
}

// BenchmarkRoundTrip: a SEND of 8 bytes and its answer, one at a time, both ends in one goroutine. It measures the
// processor time of a round trip.
func BenchmarkRoundTrip(b *testing.B) {
	for i := range networks {
		b.Run(networks[i].name, func(b *testing.B) {
			ends := newEnds(b, &networks[i], 2, func(c *soft.Config) { c.Manual, c.Shards = true, 1 })
			roundTrip(b, ends[0], ends[1])
		})
	}
}

func roundTrip(b *testing.B, x, y *end) {
	qx, qy := connect(x, y, verbs.QPTypeRC, nil)
	wr := []verbs.SendWR{{Opcode: verbs.WRSend, Flags: verbs.SendSignaled | verbs.SendInline, Inline: make([]byte, 8)}}
	recvs := []verbs.RecvWR{{SGList: []verbs.SGE{y.mr.SGE(0, 64)}}}
	recvsX := []verbs.RecvWR{{SGList: []verbs.SGE{x.mr.SGE(0, 64)}}}
	var wcs [4]verbs.WC
	wait := func(e *end) {
		for {
			k, err := e.cq.Poll(wcs[:])
			check(b, err)
			if k == 0 {
				x.dev.Step()
				y.dev.Step()
			}
			for j := range wcs[:k] {
				check(b, wcs[j].Err())
				if wcs[j].Opcode == verbs.WCRecv {
					return
				}
			}
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		check(b, qy.PostRecv(recvs...))
		check(b, qx.PostSend(wr...))
		wait(y)
		check(b, qx.PostRecv(recvsX...))
		check(b, qy.PostSend(wr...))
		wait(x)
	}
}
