package demo

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/verbena-rdma/verbena/internal/tools/endpoint"
	"github.com/verbena-rdma/verbena/internal/tools/term"
	"github.com/verbena-rdma/verbena/verbs"
)

// The file passes through two parts of the memory alternately: while this process READs one part, the
// second process loads the other from the file.
const (
	filePart   = 4 << 20
	fileRegion = 2 * filePart
)

// sendFile reads a file that the second process opens.
func (d *demo) sendFile(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	var size int64
	if err := d.Call("OpenFile", path, &size); err != nil {
		return err
	}
	bar := d.progress(filepath.Base(path), size)
	sum := sha256.New()
	start := time.Now()
	var got uint64
	loaded := d.load(0)
	for part := 0; ; part ^= 1 {
		l := <-loaded
		if l.err != nil {
			return l.err
		}
		if l.n == 0 {
			break
		}
		loaded = d.load(part ^ 1)
		if _, err := d.Do(d.Remote(verbs.WRRDMARead, part*filePart, part*filePart, l.n)); err != nil {
			return err
		}
		sum.Write(d.End.Buf[part*filePart:][:l.n])
		got += uint64(l.n)
		if err := bar.Add(l.n); err != nil {
			return err
		}
	}
	took := time.Since(start)
	if err := bar.Finish(); err != nil {
		return err
	}
	var theirs []byte
	if err := d.Call("Sum", endpoint.None{}, &theirs); err != nil {
		return err
	}
	ours := sum.Sum(nil)
	d.Printf("\n  %s by RDMA READ in %.2f s, %s, hashing included\n\n", term.Bytes(got), took.Seconds(),
		term.Rate(got, took))
	d.Printf("  SHA-256 there  %x\n  SHA-256 here   %x\n\n", theirs, ours)
	if !bytes.Equal(ours, theirs) {
		return fmt.Errorf("the SHA-256 of the received file differs")
	}
	d.Printf("  %s the same\n", d.Green("✓"))
	return nil
}

type loaded struct {
	n   int
	err error
}

// load makes the second process read the next bytes of the file into a part of its memory.
func (d *demo) load(part int) <-chan loaded {
	c := make(chan loaded, 1)
	go func() {
		var l loaded
		l.err = d.Call("Load", endpoint.Region{Off: part * filePart, Len: filePart}, &l.n)
		c <- l
	}()
	return c
}

func (d *demo) progress(name string, size int64) *progressbar.ProgressBar {
	tty := term.IsTerminal(d.Writer)
	return progressbar.NewOptions64(max(size, 1),
		progressbar.OptionSetWriter(d.Writer),
		progressbar.OptionSetVisibility(tty),
		progressbar.OptionSetDescription("  "+name),
		progressbar.OptionShowBytes(true),
		progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(50*time.Millisecond),
		progressbar.OptionSetTheme(progressbar.Theme{Saucer: "█", SaucerPadding: "░", BarStart: "", BarEnd: ""}),
	)
}
