package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// A record is a measurement with its circumstances, as --record writes it and --plot reads it.
type record struct {
	Date       string   `json:"date"`    // of the run: 2026-11-23
	Machine    string   `json:"machine"` // model of the processor
	Processors int      `json:"processors"`
	System     string   `json:"system"`         // operating system and its release
	Load       string   `json:"load,omitempty"` // load average of 1, 5 and 15 minutes before the run
	Commit     string   `json:"commit,omitempty"`
	Command    string   `json:"command,omitempty"`
	Note       string   `json:"note,omitempty"`
	Results    []result `json:"results"`
}

// newRecord describes this machine.
func newRecord(args []string, note string) *record {
	return &record{
		Date: time.Now().UTC().Format(time.DateOnly), Machine: processor(), Processors: runtime.GOMAXPROCS(0),
		System: system(), Load: load(), Commit: commit(), Note: note, Command: command(args),
	}
}

// command returns the command line without the options that do not change the measurement.
func command(args []string) string {
	kept := []string{"verbena bench"}
	for i := 0; i < len(args); i++ {
		switch name, _, joined := strings.Cut(args[i], "="); name {
		case "--record", "--note", "--plot", "--against":
			if !joined {
				i++
			}
		default:
			kept = append(kept, args[i])
		}
	}
	return strings.Join(kept, " ")
}

func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func system() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return runtime.GOOS
	}
	return runtime.GOOS + " " + strings.TrimSpace(string(release))
}

func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	if f := strings.Fields(string(text)); len(f) > 2 {
		return strings.Join(f[:3], " ")
	}
	return ""
}

// commit returns the revision that the program was built from, empty if it is unknown.
func commit() (id string) {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			id = s.Value[:min(len(s.Value), 7)]
		}
	}
	return id
}

func (r *record) write(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o666)
}

func readRecords(files []string) (records []*record, err error) {
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		r := &record{}
		if err := json.Unmarshal(text, r); err != nil {
			return nil, fmt.Errorf("%s: not a file of --record: %w", name, err)
		}
		records = append(records, r)
	}
	return records, nil
}
