package control

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

// patience is how long a process may take for its answer.
const patience = 2 * time.Second

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
		if len(f) < 8 || !strings.HasPrefix(f[7], prefix) || f[3] != "00010000" { // one that listens
			continue
		}
		names = append(names, f[7])
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func ask(name, question string) (net.Conn, error) {
	c, err := net.DialTimeout("unix", name, patience)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, question+"\n"); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Reports asks every process for its report. Processes that end meanwhile, or are others' users', are left out.
func Reports() ([]Report, error) {
	names, err := Processes()
	if err != nil {
		return nil, err
	}
	var list []Report
	for _, n := range names {
		c, err := ask(n, AskReport)
		if err != nil {
			continue
		}
		var r Report
		err = json.NewDecoder(bufio.NewReader(c)).Decode(&r)
		c.Close()
		if err == nil {
			list = append(list, r)
		}
	}
	return list, nil
}

// Capture asks a process for the packets of a device, from now on. Closing the result ends that.
func Capture(name, device string) (io.ReadCloser, error) {
	c, err := ask(name, AskCapture+" "+device)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	_ = c.SetDeadline(time.Time{})
	return c, nil
}
