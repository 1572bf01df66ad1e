package tool

import (
	"errors"
	"os"
	"sync"
)

// Output is the standard output of a program. Tools print without looking at errors: Output keeps the first one, and
// the program fails because of it. All methods may be called concurrently.
type Output struct {
	file   *os.File
	report func(error)
	once   sync.Once
	mu     sync.Mutex
	failed bool // guarded by mu
}

// An outputError is an error of Output.Write, which has been reported. Env.Failf does not print it again.
type outputError struct{ error }

func (e outputError) Unwrap() error { return e.error }

// NewOutput returns an Output that writes to file, and calls report once, with the first error and at once: a tool may
// run for days after it.
func NewOutput(file *os.File, report func(error)) *Output {
	return &Output{file: file, report: report}
}

// Write writes to the file.
func (o *Output) Write(b []byte) (int, error) {
	n, err := o.file.Write(b)
	if err == nil {
		return n, nil
	}
	var where *os.PathError
	if errors.As(err, &where) {
		err = where.Err // the name of the file is that of a device
	}
	o.mu.Lock()
	o.failed = true
	o.mu.Unlock()
	o.once.Do(func() { o.report(err) })
	return n, outputError{err}
}

// Fd returns the file's descriptor, by which term finds out whether it is a terminal.
func (o *Output) Fd() uintptr { return o.file.Fd() }

// Failed reports whether a Write has failed.
func (o *Output) Failed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed
}

// Reported reports whether err is one of Output.Write, which the user has seen.
func Reported(err error) bool {
	var e outputError
	return errors.As(err, &e)
}
