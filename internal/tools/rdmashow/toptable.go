package rdmashow

import (
	"fmt"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/internal/printable"
)

// column is one column of the table.
type column struct {
	name string
	wide int // width of the text, which is cut to it; negative: left-aligned, as in fmt
	cell func(r *qpRow) string
}

// columns lists all columns in order.
var columns = []column{
	{"PID", 7, pidOf},
	{"COMMAND", -15, func(r *qpRow) string { return r.comm }},
	{"DEVICE", -12, func(r *qpRow) string { return r.dev }},
	{"QP", 8, func(r *qpRow) string { return fmt.Sprintf("0x%06x", r.qpn) }},
	{"TYPE", -4, func(r *qpRow) string { return r.kind }},
	{"STATE", -5, func(r *qpRow) string { return r.state }},
	{"PEER", -24, peerOf},
	{"TX MB/s", 10, func(r *qpRow) string { return fmt.Sprintf("%.2f", r.rate[0]/1e6) }},
	{"RX MB/s", 10, func(r *qpRow) string { return fmt.Sprintf("%.2f", r.rate[1]/1e6) }},
	{"AGAIN/s", 9, func(r *qpRow) string { return fmt.Sprintf("%.1f", r.rate[2]) }},
	{"NAK/s", 9, func(r *qpRow) string { return fmt.Sprintf("%.1f", r.rate[3]) }},
}

// expendable lists the columns that a narrow screen omits, in this order. The rates stay longest.
var expendable = []string{"PEER", "TYPE", "DEVICE", "STATE", "COMMAND", "NAK/s", "AGAIN/s", "PID"}

func pidOf(r *qpRow) string {
	if r.pid == 0 {
		return "-"
	}
	return fmt.Sprint(r.pid)
}

func peerOf(r *qpRow) string {
	if r.peer == "" || r.dest == 0 {
		return r.peer
	}
	return fmt.Sprintf("%s 0x%06x", r.peer, r.dest)
}

// fitting returns the columns that fit a width.
func fitting(rows []qpRow, width int) []column {
	list := append([]column(nil), columns...)
	need := -1
	for i := range list {
		if list[i].name == "PEER" {
			for j := range rows {
				list[i].wide = min(list[i].wide, -len(peerOf(&rows[j]))) // an IPv6 address is longer than most
			}
		}
		need += abs(list[i].wide) + 1
	}
	for _, name := range expendable {
		if need <= width {
			break
		}
		for i := range list {
			if list[i].name == name {
				need -= abs(list[i].wide) + 1
				list = append(list[:i], list[i+1:]...)
				break
			}
		}
	}
	return list
}

func abs(n int) int { return max(n, -n) }

// table returns a line of totals and a line for each QP, no wider than width unless all expendable columns
// are omitted already.
func table(rows []qpRow, at time.Time, width int) []string {
	noun := "QPs"
	if len(rows) == 1 {
		noun = "QP"
	}
	lines := []string{fmt.Sprintf("%d %s, %s", len(rows), noun, at.Format(time.TimeOnly))}
	if len(rows) == 0 {
		return append(lines, "No program of this user has a QP.")
	}
	shown := fitting(rows, width)
	cells := make([]string, len(shown))
	line := func(cell func(c *column) string) string {
		for i := range shown {
			c := &shown[i]
			text := cell(c)
			if c.wide < 0 {
				text = fmt.Sprintf("%.*s", -c.wide, text)
			}
			cells[i] = fmt.Sprintf("%*s", c.wide, text)
		}
		return strings.TrimRight(strings.Join(cells, " "), " ")
	}
	lines = append(lines, line(func(c *column) string { return c.name }))
	for i := range rows {
		lines = append(lines, line(func(c *column) string { return printable.Text(c.cell(&rows[i])) }))
	}
	return lines
}
