// Package demo is "verbena demo": RDMA between two processes on any machine, with every byte verified, next
// to plain TCP. It imports verbs, internal/link/shm, internal/tools/{endpoint,term,tool} and a progress bar.
package demo

import (
	"fmt"
	"runtime"
	"time"

	"github.com/verbena-rdma/verbena/internal/link/shm"
	"github.com/verbena-rdma/verbena/internal/tools/endpoint"
	"github.com/verbena-rdma/verbena/internal/tools/term"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

// Tool returns the program.
func Tool() tool.Tool {
	return tool.Tool{Name: "demo", Short: "see RDMA work between two processes", Run: run}
}

func run(env *tool.Env, args []string) int {
	f := tool.NewFlags(env, "[options]")
	file := f.String("file", "", "send this file from one process to the other by RDMA READ")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	if f.NArg() > 0 {
		return f.Misused("unexpected arguments; did you mean --file " + f.Arg(0) + "?")
	}
	d := &demo{Printer: term.NewPrinter(env.Stdout)}
	if err := d.run(*file); err != nil {
		return env.Failf("%s %v", d.Red("✗"), err)
	}
	return 0
}

// The layout of the memory in both processes. The words of the atomics come first; a guard follows each
// message.
const (
	wordAt  = 0
	guard   = 4096
	message = 1 << 20
	slotA   = guard
	slotB   = slotA + message + guard
	region  = slotB + message + guard
)

type demo struct {
	*term.Printer
	*endpoint.Pair
	verified uint64 // bytes
}

func (d *demo) run(file string) (err error) {
	start := time.Now()
	if d.Pair, err = endpoint.Start(); err != nil {
		return err
	}
	defer d.Pair.Close()
	o := endpoint.Options{QPs: 1, Depth: 64, Bytes: region}
	if file != "" {
		o.Bytes = fileRegion
	}
	if err := d.Pair.Connect(o); err != nil {
		return err
	}
	if err := d.introduce(); err != nil {
		return err
	}
	if file != "" {
		if err := d.sendFile(file); err != nil {
			return err
		}
	} else {
		if err := d.operations(); err != nil {
			return err
		}
		if err := d.compare(); err != nil {
			return err
		}
	}
	if err := d.Pair.Close(); err != nil {
		return err
	}
	d.Printf("\n%s\n",
		d.Dim(fmt.Sprintf("No hardware, no kernel module, no root: %.1f s in all.", time.Since(start).Seconds())))
	return nil
}

func (d *demo) introduce() error {
	here, err := d.End.QPs[0].LocalInfo()
	if err != nil {
		return err
	}
	there := d.Peer.QPs[0]
	d.Printf("%s\n\n", d.Bold("RDMA between two processes, in user space"))
	d.Table([]string{"", "address ", "queue pair "}, [][]string{
		{"this process", d.Here.String(), fmt.Sprintf("0x%06x", here.QPN)},
		{fmt.Sprintf("process %d", d.Pid()), d.There.String(), fmt.Sprintf("0x%06x", there.QPN)},
	})
	how := "RoCEv2 over UDP port 4791: Wireshark on the loopback interface shows it"
	if runtime.GOOS == "linux" && shm.Enabled() {
		how = "through shared memory;\n  with VERBENA_SHM=0 it is RoCEv2 over UDP port 4791, " +
			"and Wireshark on the loopback interface shows it"
	}
	d.Printf("\n  reliable connection, path MTU %s, %s\n\n", min(here.MTU, there.MTU), how)
	return nil
}
