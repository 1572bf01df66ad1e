package rdmacm_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// BenchmarkConnections makes and ends connections, 64 at a time, both sides in this process.
func BenchmarkConnections(b *testing.B) {
	client, _ := udpHost(b, 2)
	server, addr := udpHost(b, 3)
	l, err := rdmacm.Listen(bg, ":0", &rdmacm.Options{Host: server, QP: queues16})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(bg)
	var acceptors sync.WaitGroup
	for range 64 {
		acceptors.Go(func() {
			for {
				id, err := l.Accept(ctx)
				if err != nil {
					return
				}
				_ = id.Disconnect(ctx)
				_ = id.Close()
			}
		})
	}
	todo := make(chan struct{}, 64)
	var dialers sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range 64 {
		dialers.Go(func() {
			for range todo {
				id, err := rdmacm.Dial(bg, at(addr, l.Addr().Port()).String(), &rdmacm.Options{Host: client, QP: queues16})
				if err != nil {
					b.Error(err)
					continue
				}
				_ = id.Disconnect(bg)
				_ = id.Close()
			}
		})
	}
	for range b.N {
		todo <- struct{}{}
	}
	close(todo)
	dialers.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "conn/s")
	stop()
	acceptors.Wait()
	_ = l.Close()
	_ = client.Close()
	_ = server.Close()
}

var queues16 = verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}

// BenchmarkIdle fills a listener with 10,000 connections and keeps them. Of each end it reports the memory (ID, QP,
// CQs, CM state), and how much longer the last thousand took than the first.
func BenchmarkIdle(b *testing.B) {
	const total, part = 10000, 1000
	for b.Loop() {
		client, _ := udpHost(b, 4)
		server, addr := udpHost(b, 5)
		l, err := rdmacm.Listen(bg, ":0", &rdmacm.Options{Host: server, QP: queues16})
		if err != nil {
			b.Fatal(err)
		}
		opts := &rdmacm.Options{Host: client, QP: queues16}
		dst := at(addr, l.Addr().Port()).String()
		ids := make([]*rdmacm.ID, 0, 2*total)
		connect := func(n int) time.Duration {
			begin := time.Now()
			for range n {
				type result struct {
					id  *rdmacm.ID
					err error
				}
				accepted := make(chan result, 1)
				go func() {
					id, err := l.Accept(bg)
					accepted <- result{id, err}
				}()
				id, err := rdmacm.Dial(bg, dst, opts)
				r := <-accepted
				if err != nil || r.err != nil {
					b.Fatal(err, r.err)
				}
				ids = append(ids, id, r.id)
			}
			return time.Since(begin)
		}
		connect(100)
		before := heap()
		first := connect(part)
		connect(total - 2*part - 100)
		last := connect(part)
		b.ReportMetric(float64(heap()-before)/float64(2*(total-100)), "B/end")
		b.ReportMetric(float64(last)/float64(first), "last/first")
		for _, id := range ids {
			_ = id.Disconnect(nowhere)
			_ = id.Close()
		}
		_ = l.Close()
		_ = client.Close()
		_ = server.Close()
	}
}

// nowhere is a context that does not wait.
var nowhere = func() context.Context {
	ctx, cancel := context.WithCancel(bg)
	cancel()
	return ctx
}()

// heap is the memory in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
