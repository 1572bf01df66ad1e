package main

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/loopback"
)

func TestDoctorOfAHealthyHost(t *testing.T) {
	out, errs, status := output(t, "verbena", "doctor")
	if status != 0 || !strings.Contains(out, "device vrb_test: its port works") || !strings.Contains(out, ownAddr) ||
		!strings.Contains(out, "No problem found.") {
		t.Errorf("status %d\n%s%s", status, out, errs)
	}
}

// --json prints the findings as JSON; the exit status reports problems.
func TestDoctorJSON(t *testing.T) {
	out, errs, status := output(t, "verbena", "doctor", "--json", "nosuch.invalid")
	var findings []struct{ Level, What, Found, Type string }
	if err := json.Unmarshal([]byte(out), &findings); err != nil || status != 1 {
		t.Fatalf("status %d, %v\n%s%s", status, err, out, errs)
	}
	last := findings[len(findings)-1]
	if last.Level != "problem" || last.What != "peer nosuch.invalid" || last.Found == "" || last.Type == "" {
		t.Errorf("%+v", last)
	}
}

// A host on which the RoCE port is closed rejects the datagram.
func TestDoctorFindsClosedPort(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has all of 127.0.0.0/8")
	}
	out, errs, status := output(t, "verbena", "doctor", loopback.Addr(77))
	if status != 1 || !strings.Contains(out, "UDP port 4791 is closed there") ||
		!strings.Contains(out, "1 problem found.") {
		t.Errorf("status %d\n%s%s", status, out, errs)
	}
}

// A peer's connection manager answers over the network and through shared memory, and does not answer if
// all packets are lost.
func TestDoctorAsksThePeer(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has all of 127.0.0.0/8")
	}
	addr := loopback.Addr(78)
	for _, shm := range []string{"1", "0"} {
		t.Setenv("VERBENA_SHM", shm)
		start(t, addr, "rping", "-s", "-a", addr, "-p", loopback.Port())
		out, errs, status := "", "", 1
		// until rping listens
		for deadline := time.Now().Add(time.Minute); status != 0 && time.Now().Before(deadline); {
			out, errs, status = output(t, "verbena", "doctor", addr)
		}
		if status != 0 || !strings.Contains(out, "its connection manager answers") {
			t.Errorf("VERBENA_SHM=%s: status %d\n%s%s", shm, status, out, errs)
		}
		if shm == "1" {
			continue
		}
		t.Setenv("VERBENA_FAULT", "loss=0.999")
		out, errs, status = output(t, "verbena", "doctor", "--timeout", "300ms", addr)
		if status != 1 || !strings.Contains(out, "no answer to a connection request") ||
			!strings.Contains(out, "VERBENA_FAULT=loss=0.999") {
			t.Errorf("all lost: status %d\n%s%s", status, out, errs)
		}
	}
}

func TestDoctorMisuse(t *testing.T) {
	for _, args := range [][]string{{"a", "b"}, {"--timeout", "0s", "a"}, {"--nonsense"}} {
		if _, errs, status := output(t, "verbena", append([]string{"doctor"}, args...)...); status == 0 || errs == "" {
			t.Errorf("doctor %q: status %d, %q", args, status, errs)
		}
	}
}
