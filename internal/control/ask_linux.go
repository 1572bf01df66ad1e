package control

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// mostAnswer is how much a process may tell, bytes.
const mostAnswer = 256 << 20

// sockets is where Linux lists unix sockets.
var sockets = "/proc/net/unix"

// Processes lists the sockets of the processes that answer here.
func Processes() ([]string, error) {
	b, err := os.ReadFile(sockets)
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 8 || !strings.HasPrefix(f[7], programs) || f[3] != "00010000" { // one that listens
			continue
		}
		names = append(names, f[7])
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// ask asks one process, pid as this process sees it, 0 if it does not.
func ask(name, question string) (c net.Conn, pid int, err error) {
	c, err = net.DialTimeout("unix", name, patience)
	if err != nil {
		return nil, 0, err
	}
	cred, err := genuine(c.(*net.UnixConn), name)
	if err == nil {
		_ = c.SetDeadline(time.Now().Add(patience))
		_, err = io.WriteString(c, question+"\n")
	}
	if err != nil {
		c.Close()
		return nil, 0, err
	}
	return c, int(cred.Pid), nil
}

// Reports asks every process for its report, with each object if objects is set. Processes that end meanwhile are left out; others that do
// not answer are in silent. All are asked at the same time: those that are stopped cost the time of one.
func Reports(objects bool) (list []Report, silent []Silent, err error) {
	question := AskReport
	if objects {
		question = AskObjects
	}
	names, err := Processes()
	if err != nil {
		return nil, nil, err
	}
	answers, errs := make([]Report, len(names)), make([]error, len(names))
	var asking sync.WaitGroup
	for i, n := range names {
		asking.Add(1)
		go func() {
			defer asking.Done()
			answers[i], errs[i] = report(n, question)
		}()
	}
	asking.Wait()
	for i, n := range names {
		switch {
		case errs[i] == nil:
			list = append(list, answers[i])
		case !errors.Is(errs[i], errEnded):
			silent = append(silent, Silent{n, errs[i]})
		}
	}
	return list, silent, nil
}

// errEnded is the silence of a process that is about to end.
var errEnded = errors.New("it has ended")

func report(name, question string) (r Report, err error) {
	c, pid, err := ask(name, question)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return r, errEnded
	case hungUp(err):
		return r, refused(name)
	case err != nil:
		return r, err
	}
	defer c.Close()
	switch err = json.NewDecoder(bufio.NewReader(io.LimitReader(c, mostAnswer))).Decode(&r); {
	case hungUp(err):
		return r, refused(name)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return r, fmt.Errorf("no answer within %v: is it stopped?", patience)
	case err != nil:
		return r, fmt.Errorf("an answer that makes no sense, is it of another version? (%w)", err)
	}
	if pid > 0 {
		r.PID = pid
	}
	return r, nil
}

func hungUp(err error) bool {
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// refused is why a process hangs up: it is for others, or has ended.
func refused(name string) error {
	if uid, _ := owner(name); os.Geteuid() != 0 && os.Geteuid() != uid {
		return fmt.Errorf("refused: a program answers its own user, here %d, and root", uid)
	}
	return errEnded
}

// Capture asks a process for the packets of a device, from now on, unless it has called announced.
func Capture(name, device, announced string) (*Stream, error) {
	c, _, err := ask(name, strings.TrimSpace(AskCapture+" "+device+" "+announced))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	_ = c.SetDeadline(time.Time{})
	return &Stream{c, c.(*net.UnixConn)}, nil
}
