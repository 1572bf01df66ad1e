package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash"
	"os"
	"path/filepath"
)

// An incoming file has a temporary name until it is complete.
type incoming struct {
	name          string
	size, written int64
	f             *os.File
	path          string // final name
	sum           hash.Hash
}

// begin starts a file. The client chose the name, so begin checks that the path stays in the folder.
func begin(dir string, piece []byte) (*incoming, error) {
	name, size, err := decodeBegin(piece)
	if err != nil {
		return nil, err
	}
	if !filepath.IsLocal(name) || name != filepath.Base(name) || name == "." {
		return nil, fmt.Errorf("%q is not a file name: must not contain a folder", name)
	}
	if size < 0 {
		return nil, fmt.Errorf("%q: size %d: must not be negative", name, size)
	}
	f, err := os.CreateTemp(dir, ".incoming-*")
	if err != nil {
		return nil, err
	}
	return &incoming{name: name, size: size, f: f, path: filepath.Join(dir, name), sum: sha256.New()}, nil
}

func (in *incoming) write(data []byte) error {
	if in.written+int64(len(data)) > in.size {
		return fmt.Errorf("%q: more data than the announced %d bytes", in.name, in.size)
	}
	in.sum.Write(data)
	n, err := in.f.Write(data)
	in.written += int64(n)
	return err
}

// finish checks size and checksum and renames the file. It replaces an existing file of that name.
func (in *incoming) finish(sum []byte) error {
	defer in.discard()
	if in.written != in.size {
		return fmt.Errorf("%q: received %d of %d bytes", in.name, in.written, in.size)
	}
	if got := in.sum.Sum(nil); !bytes.Equal(got, sum) {
		return fmt.Errorf("%q: checksum %x: must be %x", in.name, got, sum)
	}
	if err := in.f.Close(); err != nil {
		return err
	}
	return os.Rename(in.f.Name(), in.path)
}

// discard closes and removes the temporary file. After finish has renamed it, it does nothing.
func (in *incoming) discard() {
	_ = in.f.Close()
	_ = os.Remove(in.f.Name())
}
