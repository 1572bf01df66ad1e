package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash"
	"os"
	"path/filepath"
)

// An incoming file has another name until it is whole, so that nobody takes half a file for one.
type incoming struct {
	name          string
	size, written int64
	f             *os.File
	path          string // in the end
	sum           hash.Hash
}

// begin starts a file. The name is the client's, so it must not lead out of the folder.
func begin(dir string, piece []byte) (*incoming, error) {
	name, size, err := decodeBegin(piece)
	if err != nil {
		return nil, err
	}
	if !filepath.IsLocal(name) || name != filepath.Base(name) || name == "." {
		return nil, fmt.Errorf("%q is not the name of a file; it must have no folder", name)
	}
	if size < 0 {
		return nil, fmt.Errorf("%s: %d bytes are not possible", name, size)
	}
	f, err := os.CreateTemp(dir, ".incoming-*")
	if err != nil {
		return nil, err
	}
	return &incoming{name: name, size: size, f: f, path: filepath.Join(dir, name), sum: sha256.New()}, nil
}

func (in *incoming) write(data []byte) error {
	if in.written+int64(len(data)) > in.size {
		return fmt.Errorf("%s: more than the %d bytes that were announced", in.name, in.size)
	}
	in.sum.Write(data)
	n, err := in.f.Write(data)
	in.written += int64(n)
	return err
}

// finish compares the checksum and gives the file its name. A file of that name that is there already is replaced.
func (in *incoming) finish(sum []byte) error {
	defer in.discard()
	if in.written != in.size {
		return fmt.Errorf("%s: %d of %d bytes have come", in.name, in.written, in.size)
	}
	if got := in.sum.Sum(nil); !bytes.Equal(got, sum) {
		return fmt.Errorf("%s: the checksum is %x here and %x at the client", in.name, got, sum)
	}
	if err := in.f.Close(); err != nil {
		return err
	}
	return os.Rename(in.f.Name(), in.path)
}

// discard removes what is there of a file; after a rename that is nothing.
func (in *incoming) discard() {
	_ = in.f.Close()
	_ = os.Remove(in.f.Name())
}
