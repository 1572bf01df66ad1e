package control

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestReportsOfFailing checks that stopped programs together take the time of one, and that they and those with
// invalid answers are named, but not those that have ended.
func TestReportsOfFailing(t *testing.T) {
	patient(t)
	s := serve(t, &program{})
	listen := func(pid int, answer func(net.Conn)) string {
		name := Name(os.Geteuid(), pid)
		l, err := net.Listen("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		if answer == nil {
			return name
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() { defer c.Close(); answer(c) }()
			}
		}()
		return name
	}
	const base = 1 << 30 // no process has such a number
	var stopped []string
	for i := range 5 {
		stopped = append(stopped, listen(base+i, nil))
	}
	sick := map[string]string{
		listen(base+10, func(c net.Conn) { fmt.Fprint(c, "HTTP/1.1 400 Bad Request\r\n\r\n"); slurp(c) }): "invalid answer",
		listen(base+11, func(c net.Conn) { fmt.Fprint(c, `{"pid": "seven"}`); slurp(c) }):                 "invalid answer",
		listen(base+12, func(c net.Conn) { // a report without an end
			fmt.Fprint(c, `{"devices":[`)
			for err := error(nil); err == nil; {
				_, err = fmt.Fprint(c, strings.Repeat(`{"name":"x"},`, 1000))
			}
		}): "answer", // none in time, or one that is too long
	}
	for _, n := range stopped {
		sick[n] = "no answer within"
	}
	gone := listen(base+20, func(c net.Conn) {}) // closes the connection at once, as a process that ends
	begun := time.Now()
	list, silent, err := Reports(false)
	if d := time.Since(begun); err != nil || d > 10*timeout() {
		t.Errorf("%v after %v", err, d)
	}
	if !slices.ContainsFunc(list, func(r Report) bool { return r.Comm == "test" }) {
		t.Errorf("the working program is not in %+v", list)
	}
	for _, x := range silent {
		if want, ok := sick[x.Name]; x.Name == gone || ok && !strings.Contains(x.Err.Error(), want) {
			t.Errorf("%s: %v, want %s", x.Name, x.Err, want)
		}
		delete(sick, x.Name)
	}
	if len(sick) > 0 {
		t.Errorf("not named: %v", sick)
	}
	alive(t, s)
}

// TestAnswerTooLong checks that an answer that is cut is no answer of a process that ends.
func TestAnswerTooLong(t *testing.T) {
	const text = "0123456789"
	for limit, want := range map[int64]error{5: errTooLong, int64(len(text) + 1): nil} {
		b, err := io.ReadAll(&capped{strings.NewReader(text), limit})
		if !errors.Is(err, want) || int64(len(b)) != min(limit, int64(len(text))) {
			t.Errorf("limit %d: %q, %v", limit, b, err)
		}
	}
	if hungUp(errTooLong) {
		t.Error("it is taken for a process that has ended")
	}
}

// TestManySilent checks that a user with many sockets that do not answer does not delay a tool for long.
func TestManySilent(t *testing.T) {
	defer testTimeout.Store(testTimeout.Swap(int64(100 * time.Millisecond)))
	const base, many, most = 1 << 29, 4 * mostAsked, 3 * mostAsked
	for i := range many {
		l, err := net.Listen("unix", Name(os.Geteuid(), base+i))
		if err != nil {
			t.Skip(err)
		}
		defer l.Close()
	}
	_, silent, err := Reports(false)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, x := range silent {
		if !errors.Is(x.Err, errNotAsked) {
			asked++
		}
	}
	if asked > most {
		t.Errorf("%d of %d are asked", asked, many)
	}
}

func slurp(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
