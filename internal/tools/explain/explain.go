// Package explain is "verbena explain": it prints a capture as a ladder of messages, with acknowledgements,
// NAKs, retries and their reasons.
//
//	read.go    reads packets from pcapng and pcap files
//	checked.go rejects damaged pcapng files
//	order.go   sorts packets by their times
//	ladder.go  combines packets into messages
//	stream.go  combines the segments of iWARP's TCP streams
//	window.go  bounds the memory of the ladder
//	text.go    prints the ladder as text
//	svg.go     draws the ladder
//	explain.go is the program
//
// It imports internal/{printable,transport,wire}, internal/wire/{cmmsg,iwarp}, internal/tools/{capture,tool} and
// gopacket.
package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/tools/capture"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

// Tool returns the program.
func Tool() tool.Tool {
	return tool.Tool{Name: "explain", Short: "a capture in words: messages, acknowledgements, NAKs, retries and why",
		Run: run}
}

func run(env *tool.Env, args []string) int {
	f := tool.NewFlags(env,
		"[--svg FILE] CAPTURE     a pcapng or pcap file; - is the standard input\n"+
			"[-c PACKETS] -i DEVICE live   the packets of running programs, until Ctrl-C")
	svg := f.String("svg", "", "draw the ladder in this file")
	device := f.StringP("interface", "i", "", "live: the device")
	count := f.IntP("count", "c", 0, "live: end after this many packets")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	if f.NArg() != 1 {
		return f.Misused("must be given one capture file, or the word live")
	}
	live := f.Arg(0) == "live"
	switch {
	case live && *device == "":
		return f.Misused("live: no device: name one with -i DEVICE; verbena rdma resource show qp lists those in use")
	case !live && (*device != "" || f.Changed("count")):
		return f.Misused(fmt.Sprintf("-i and -c are for live; %s is a file", f.Arg(0)))
	case *count < 0:
		return f.Misused(fmt.Sprintf("count %d: must be at least 0 (0: no limit)", *count))
	}
	l, out := newLadder(), &text{w: env.Stdout, draws: *svg != ""}
	var others int
	var err error
	if live {
		if err := ready(*device, *svg); err != nil {
			return env.Failf("%s: %v", env.Argv0, err)
		}
		others, err = follow(l, out, *device, *count)
	} else {
		others, err = fromFile(l, out, f.Arg(0))
		if err != nil && l.packets+l.messages == 0 {
			return env.Failf("%s: %s: %v", env.Argv0, f.Arg(0), err)
		}
	}
	why := "capture UDP port 4791, or TCP with iWARP from the connection on, with whole packets (tcpdump -s 0)"
	if live {
		why = capture.Nothing(*device)
	}
	l.summary(env.Stdout, others, why)
	status := 0
	if err != nil {
		status = env.Failf("%s: %v", env.Argv0, err)
	}
	if *svg != "" {
		if err := os.WriteFile(*svg, picture(out.drawn), 0o644); err != nil {
			return env.Failf("%s: %v", env.Argv0, err)
		}
	}
	return status
}

func fromFile(l *ladder, out *text, name string) (others int, err error) {
	file := os.Stdin
	if name != "-" {
		if file, err = os.Open(name); err != nil {
			var pe *os.PathError
			if errors.As(err, &pe) {
				err = pe.Err
			}
			return 0, err
		}
		defer file.Close()
	}
	s, err := open(file)
	if err != nil {
		return 0, err
	}
	others, err = each(s, fileSpan, func(p *packet) bool {
		ok := l.any(p)
		l.emit(window, out.print)
		return ok
	})
	l.emit(0, out.print)
	return others, err
}

// ready returns an error if the device is unknown or the picture cannot be written, before the capture
// starts.
func ready(device, svg string) error {
	if err := capture.Check(device); err != nil || svg == "" {
		return err
	}
	return tool.Writable(svg)
}

// follow prints each step when the next one begins.
func follow(l *ladder, out *text, device string, count int) (int, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return piped(ctx, l, out, func(ctx context.Context, w io.Writer) error {
		_, err := capture.Follow(ctx, device, w, capture.Limits{Packets: count}, nil)
		return err
	})
}

// piped explains what record writes. If that is damaged, it ends ctx of record, and writes of record fail.
func piped(ctx context.Context, l *ladder, out *text, record func(context.Context, io.Writer) error) (others int,
	err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r, w := io.Pipe()
	recorded := make(chan error, 1)
	go func() {
		err := record(ctx, w)
		w.Close()
		recorded <- err
	}()
	s, err := open(r)
	if err == nil {
		others, err = each(s, liveSpan, func(p *packet) bool {
			ok := l.any(p)
			l.emit(1, out.print)
			return ok
		})
		l.emit(0, out.print)
	}
	if err != nil {
		stop()
		r.Close()
		<-recorded
		return others, err
	}
	return others, <-recorded
}

// any adds a packet. It reports whether that is one of RoCEv2 or iWARP.
func (l *ladder) any(p *packet) bool {
	if p.tcp != nil {
		return l.stream(p)
	}
	l.add(p)
	return true
}

// pair returns the addresses of a step in ascending order.
func pair(s *step) (left, right netip.Addr) {
	if s.src.Less(s.dst) {
		return s.src, s.dst
	}
	return s.dst, s.src
}

func samePair(a, b *step) bool {
	al, ar := pair(a)
	bl, br := pair(b)
	return al == bl && ar == br
}

// summary prints the totals, and why if there is nothing.
func (l *ladder) summary(w io.Writer, others int, why string) {
	what := fmt.Sprintf("%d RoCEv2 packets", l.packets)
	if l.fpdus > 0 && l.packets > 0 {
		what += fmt.Sprintf(", %d FPDUs of iWARP", l.fpdus)
	} else if l.fpdus > 0 {
		what = fmt.Sprintf("%d FPDUs of iWARP", l.fpdus)
	}
	parts := []string{fmt.Sprintf("%s, %d messages and answers", what, l.messages)}
	for _, p := range []struct {
		n    int
		what string
	}{{l.again, "sent again"}, {l.naks, "NAKs"}, {l.rnrs, "RNR NAKs"}, {l.terminates, "Terminates"},
		{others, "other packets"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	fmt.Fprintf(w, "\n%s\n", strings.Join(parts, ", "))
	if l.packets+l.messages == 0 {
		fmt.Fprintln(w, "nothing to explain: "+why)
	}
}
