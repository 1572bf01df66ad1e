package tool

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"
)

// Output reports its first error, once, and Failf does not repeat it.
func TestOutputReportsItsFirstError(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	var reported []error
	o := NewOutput(file, func(err error) { reported = append(reported, err) })
	if n, err := o.Write([]byte("ok")); n != 2 || err != nil || o.Failed() {
		t.Errorf("%d, %v, failed %v", n, err, o.Failed())
	}
	file.Close()
	for range 2 {
		_, err = o.Write([]byte("lost"))
		if !errors.Is(err, os.ErrClosed) || !Reported(err) || !o.Failed() {
			t.Errorf("%v, failed %v", err, o.Failed())
		}
	}
	if len(reported) != 1 || reported[0] != os.ErrClosed {
		t.Errorf("reported %v", reported)
	}
	errs := new(bytes.Buffer)
	env := &Env{Stderr: errs}
	if status := env.Failf("%s: %v", "tool", fmt.Errorf("encode: %w", err)); status != 1 || errs.Len() > 0 {
		t.Errorf("status %d, %q", status, errs)
	}
	if env.Failf("%v", os.ErrClosed); errs.Len() == 0 {
		t.Error("an error of another file is not printed")
	}
}
