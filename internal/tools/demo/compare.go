package demo

import (
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/endpoint"
	"github.com/verbena-rdma/verbena/internal/tools/term"
	"github.com/verbena-rdma/verbena/verbs"
)

// The measurement of each figure.
const (
	latencyTime   = 200 * time.Millisecond
	bandwidthTime = 300 * time.Millisecond
	small         = 8
	window        = 8 // messages in flight
)

// compare measures each operation and TCP, and prints the table.
func (d *demo) compare() error {
	var rows [][]string
	for _, op := range []struct {
		name  string
		code  verbs.WROpcode
		mode  int // of the second process
		large bool
	}{
		{"SEND", verbs.WRSend, endpoint.Sink, true},
		{"RDMA WRITE", verbs.WRRDMAWrite, endpoint.Spin, true},
		{"WRITE_WITH_IMM", verbs.WRRDMAWriteWithImm, endpoint.Sink, true},
		{"RDMA READ", verbs.WRRDMARead, endpoint.Spin, true},
		{"FETCH_ADD", verbs.WRAtomicFetchAndAdd, endpoint.Spin, false},
		{"CMP_SWAP", verbs.WRAtomicCmpAndSwp, endpoint.Spin, false},
	} {
		row := []string{op.name, "", "–"}
		err := d.Serving(endpoint.Serving{Mode: op.mode, Bytes: message}, func() error {
			median, err := d.Latency(latencyTime, d.Remote(op.code, wordAt, wordAt, small))
			row[1] = term.Micros(median)
			if err == nil && op.large {
				var rate float64
				rate, err = d.Pump(bandwidthTime, window, d.Remote(op.code, slotA, slotA, message))
				row[2] = term.PerSecond(rate * message)
			}
			return err
		})
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	row, err := d.tcp()
	if err != nil {
		return err
	}
	d.Table([]string{"operation", "8 bytes and back", term.Bytes(message) + " messages"}, append(rows, row))
	return nil
}

// tcp measures the same over TCP connections.
func (d *demo) tcp() ([]string, error) {
	echo, err := d.DialTCP(small, true)
	if err != nil {
		return nil, err
	}
	defer echo.Close()
	median, err := endpoint.TCPLatency(latencyTime, echo)
	if err != nil {
		return nil, err
	}
	sink, err := d.DialTCP(message, false)
	if err != nil {
		return nil, err
	}
	defer sink.Close()
	rate, err := endpoint.TCPRate(bandwidthTime, sink)
	return []string{"plain TCP", term.Micros(median), term.PerSecond(rate * message)}, err
}
