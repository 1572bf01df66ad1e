package demo

import (
	"fmt"

	"github.com/verbena-rdma/verbena/internal/tools/endpoint"
	"github.com/verbena-rdma/verbena/internal/tools/term"
	"github.com/verbena-rdma/verbena/verbs"
)

// operations performs each operation once and verifies that it changed exactly the memory that it had to
// change, in both processes.
func (d *demo) operations() error {
	for _, op := range []struct {
		name string
		do   func() (string, error)
	}{
		{"SEND", d.send},
		{"RDMA WRITE", d.write},
		{"WRITE_WITH_IMM", d.writeWithImm},
		{"RDMA READ", d.read},
		{"FETCH_ADD", d.fetchAdd},
		{"CMP_SWAP", d.cmpSwap},
	} {
		said, err := op.do()
		if err != nil {
			return fmt.Errorf("%s: %w", op.name, err)
		}
		d.Printf("  %s %-15s %s\n", d.Green("✓"), op.name, said)
	}
	d.Printf("\n  %s, all correct\n\n", d.Bold(term.Count(d.verified)+" bytes verified"))
	return nil
}

// untouched is the seed of the pattern in memory that must not change.
const untouched = 99

// prepare fills a slot in this process and all memory of the second one, including the guards.
func (d *demo) prepare(slot int, seed uint64) error {
	endpoint.Fill(d.End.Buf[slot:][:message], seed)
	return d.Call("Fill", endpoint.Region{Len: region, Seed: untouched}, &endpoint.None{})
}

// checkThere verifies a message in a slot of the second process, and the guards around it.
func (d *demo) checkThere(slot int, seed uint64) error {
	if err := d.Call("Check", endpoint.Region{Off: slot, Len: message, Seed: seed}, &endpoint.None{}); err != nil {
		return err
	}
	d.verified += message
	want := make([]byte, region)
	endpoint.Fill(want, untouched)
	for _, g := range []int{slot - guard, slot + message} {
		same := endpoint.Match{Off: g, Want: want[g:][:guard]}
		if err := d.Call("Same", same, &endpoint.None{}); err != nil {
			return fmt.Errorf("outside the message: %w", err)
		}
		d.verified += guard
	}
	return nil
}

func (d *demo) send() (string, error) {
	if err := d.prepare(slotA, 1); err != nil {
		return "", err
	}
	if err := d.Call("PostRecv", endpoint.Region{Off: slotA, Len: message}, &endpoint.None{}); err != nil {
		return "", err
	}
	wr := verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{d.End.MR.SGE(slotA, message)}}
	if _, err := d.Do(wr); err != nil {
		return "", err
	}
	var wc verbs.WC
	if err := d.Call("Received", endpoint.None{}, &wc); err != nil {
		return "", err
	}
	if wc.Opcode != verbs.WCRecv || wc.ByteLen != message {
		return "", fmt.Errorf("the other process received %v of %d bytes", wc.Opcode, wc.ByteLen)
	}
	return term.Bytes(message) + " arrived in the receive posted by the other process", d.checkThere(slotA, 1)
}

func (d *demo) write() (string, error) {
	if err := d.prepare(slotB, 2); err != nil {
		return "", err
	}
	if _, err := d.Do(d.Remote(verbs.WRRDMAWrite, slotB, slotB, message)); err != nil {
		return "", err
	}
	return term.Bytes(message) + " are in the other process's memory, and its program did nothing",
		d.checkThere(slotB, 2)
}

func (d *demo) writeWithImm() (string, error) {
	const imm = 0x5eed
	if err := d.prepare(slotA, 3); err != nil {
		return "", err
	}
	if err := d.Call("PostRecv", endpoint.Region{}, &endpoint.None{}); err != nil {
		return "", err
	}
	wr := d.Remote(verbs.WRRDMAWriteWithImm, slotA, slotA, message)
	wr.ImmData = imm
	if _, err := d.Do(wr); err != nil {
		return "", err
	}
	var wc verbs.WC
	if err := d.Call("Received", endpoint.None{}, &wc); err != nil {
		return "", err
	}
	if wc.Opcode != verbs.WCRecvRDMAWithImm || wc.WCFlags&verbs.WCWithImm == 0 || wc.ImmData != imm {
		return "", fmt.Errorf("the other process received %v with immediate 0x%x", wc.Opcode, wc.ImmData)
	}
	return fmt.Sprintf("%s written, and the other process notified: immediate 0x%x", term.Bytes(message), imm),
		d.checkThere(slotA, 3)
}

func (d *demo) read() (string, error) {
	if err := d.prepare(slotB, untouched); err != nil {
		return "", err
	}
	if err := d.Call("Fill", endpoint.Region{Off: slotA, Len: message, Seed: 4}, &endpoint.None{}); err != nil {
		return "", err
	}
	if _, err := d.Do(d.Remote(verbs.WRRDMARead, slotB, slotA, message)); err != nil {
		return "", err
	}
	d.verified += message
	return term.Bytes(message) + " fetched from the other process's memory", endpoint.Check(d.End.Buf[slotB:][:message], 4)
}

func (d *demo) fetchAdd() (string, error) {
	const before, add = 1000, 42
	wr := d.Remote(verbs.WRAtomicFetchAndAdd, wordAt, wordAt, 8)
	wr.CompareAdd = add
	if err := d.atomic(wr, before, before, before+add); err != nil {
		return "", err
	}
	return fmt.Sprintf("the other process's counter went from %d to %d, and the old value was returned",
		before, before+add), nil
}

func (d *demo) cmpSwap() (string, error) {
	const free, mine, other = 0, 7, 8
	wr := d.Remote(verbs.WRAtomicCmpAndSwp, wordAt, wordAt, 8)
	wr.CompareAdd, wr.Swap = free, mine
	if err := d.atomic(wr, free, free, mine); err != nil {
		return "", err
	}
	wr.Swap = other
	if err := d.atomic(wr, mine, mine, mine); err != nil {
		return "", err
	}
	return fmt.Sprintf("the lock was free (%d) and is ours (%d); a second attempt failed and returned the owner", free,
		mine), nil
}

// atomic performs wr on a word with the value before, and checks the returned value and the value after.
func (d *demo) atomic(wr verbs.SendWR, before, returned, after uint64) error {
	if err := d.Call("SetWord", [2]uint64{wordAt, before}, &endpoint.None{}); err != nil {
		return err
	}
	if _, err := d.Do(wr); err != nil {
		return err
	}
	if got := endpoint.Word(d.End.Buf[wordAt:]); got != returned {
		return fmt.Errorf("the atomic returned %d instead of %d", got, returned)
	}
	var now uint64
	if err := d.Call("Word", wordAt, &now); err != nil {
		return err
	}
	if now != after {
		return fmt.Errorf("the other process has %d instead of %d", now, after)
	}
	d.verified += 16
	return nil
}
