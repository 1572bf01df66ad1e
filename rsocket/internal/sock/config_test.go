package sock

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestR_CFG_01_02_04_Files(t *testing.T) {
	builtin := Defaults{
		Options: Options{
			SendBuf: 131072, RecvBuf: 131072, SQSize: 384, RQSize: 384, Inline: 64, Polling: 10 * time.Microsecond,
		},
		WakeUp:         500 * time.Millisecond,
		DefaultPolling: true,
	}
	dir := t.TempDir()
	if got := readConfig(dir); !reflect.DeepEqual(got, builtin) {
		t.Errorf("without files: %+v", got)
	}
	for name, text := range map[string]string{
		"mem_default": "1000000\n", "wmem_default": "100", "sqsize_default": " 20 ", "rqsize_default": "abc",
		"inline_default": "0", "iomap_size": "-3",
		"polling_time": "250\n", "wake_up_interval": "99999999999999",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := builtin
	want.RecvBuf, want.SendBuf, want.SQSize, want.Inline, want.Polling = 1000000, 4096, 20, 0, 250*time.Microsecond
	want.DefaultPolling = false
	if got := readConfig(dir); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A receive buffer has at least one byte.
func TestSmallestRecvBuffer(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]int{"0": 1, "1": 1, "2": 2} {
		if err := os.WriteFile(filepath.Join(dir, "mem_default"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := readConfig(dir).RecvBuf; got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

// A send buffer of less than 2048 bytes becomes one of 4096.
func TestSmallestSendBuffer(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]int{"0": 4096, "2047": 4096, "2048": 2048, "2049": 2049} {
		if err := os.WriteFile(filepath.Join(dir, "wmem_default"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := readConfig(dir).SendBuf; got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

// Each file sets its own value, and no other.
func TestR_CFG_01_EachFile(t *testing.T) {
	builtin := readConfig(t.TempDir())
	for name, set := range map[string]func(d *Defaults){
		"mem_default":      func(d *Defaults) { d.RecvBuf = 5001 },
		"wmem_default":     func(d *Defaults) { d.SendBuf = 5001 },
		"sqsize_default":   func(d *Defaults) { d.SQSize = 5001 },
		"rqsize_default":   func(d *Defaults) { d.RQSize = 5001 },
		"inline_default":   func(d *Defaults) { d.Inline = 5001 },
		"iomap_size":       func(d *Defaults) { d.IOMaps = 5001 },
		"polling_time":     func(d *Defaults) { d.Polling, d.DefaultPolling = 5001*time.Microsecond, false },
		"wake_up_interval": func(d *Defaults) { d.WakeUp = 5001 * time.Millisecond },
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), []byte("5001\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		want := builtin
		set(&want)
		if got := readConfig(dir); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// TestR_CFG_01_NoPolling: a polling time of 0 is a value of its own, not a missing one.
func TestR_CFG_01_NoPolling(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "polling_time"), []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	if d := readConfig(dir); d.DefaultPolling || d.Polling != 0 {
		t.Errorf("default polling %v, %v", d.DefaultPolling, d.Polling)
	}
}

// TestR_CFG_01_DefaultsOfSockets: the options of a socket are those of the files, in a process that begins with them.
func TestR_CFG_01_DefaultsOfSockets(t *testing.T) {
	const child = "VERBENA_TEST_PRINT_DEFAULTS"
	if os.Getenv(child) != "" {
		fmt.Printf("options %+v\n", Options{}.WithDefaults())
		return
	}
	dir := t.TempDir()
	for i, name := range []string{
		"mem_default", "wmem_default", "sqsize_default", "rqsize_default", "inline_default", "iomap_size",
		"polling_time",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strconv.Itoa(5001+i)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestR_CFG_01_DefaultsOfSockets$", "-test.count=1")
	cmd.Env = append(os.Environ(), child+"=1", "VERBENA_RSOCKET_CONFIG="+dir)
	out, err := cmd.CombinedOutput()
	want := fmt.Sprintf("options %+v\n", Options{
		RecvBuf: 5001, SendBuf: 5002, SQSize: 5003, RQSize: 5004, Inline: 5005, IOMaps: 5006,
		Polling: 5007 * time.Microsecond,
	})
	if err != nil || !strings.Contains(string(out), want) {
		t.Errorf("%v, %s, want %s", err, out, want)
	}
}

// The files are read once.
func TestR_CFG_03_ReadOnce(t *testing.T) {
	first := Config()
	dir := t.TempDir()
	SetConfigDir(dir)
	t.Cleanup(func() { SetConfigDir("/etc/rdma/rsocket") })
	if err := os.WriteFile(filepath.Join(dir, "mem_default"), []byte("77"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := Config(); !reflect.DeepEqual(got, first) {
		t.Errorf("%+v", got)
	}
}

// Each try of finding the way has twice the time of the one before, seven times in all.
func TestR_SOCK_15_ResolveTimes(t *testing.T) {
	var st Stream
	want := time.Second
	for st.tries = range resolveTries {
		if got := st.resolveTimeout(); got != want {
			t.Errorf("try %d: %v, want %v", st.tries, got, want)
		}
		want *= 2
	}
	if want != 128*time.Second {
		t.Errorf("%d tries", resolveTries)
	}
}

func TestDeadlines(t *testing.T) {
	var d deadline
	if d.expired() {
		t.Error("expired at once")
	}
	over := d.wait()
	d.set(time.Now().Add(time.Millisecond))
	<-over
	if !d.expired() {
		t.Error("not expired")
	}
	d.set(time.Time{})
	if d.expired() {
		t.Error("expired without a deadline")
	}
	d.set(time.Now().Add(-time.Second))
	if !d.expired() {
		t.Error("a deadline in the past has not expired")
	}
	d.set(time.Now().Add(time.Hour))
	if d.expired() {
		t.Error("a deadline in an hour has expired")
	}
	d.set(time.Now().Add(-time.Hour))
	<-d.wait()
}

// The folder of the environment counts more than that of the program, and that more than the usual one.
func TestFolderOfTheConfiguration(t *testing.T) {
	t.Setenv("VERBENA_RSOCKET_CONFIG", "")
	t.Cleanup(func() { SetConfigDir("/etc/rdma/rsocket") })
	configDir = atomic.Value{}
	if configPath() != "/etc/rdma/rsocket" {
		t.Errorf("%s, want the usual one", configPath())
	}
	for _, dir := range []string{"/one", "/two"} {
		if SetConfigDir(dir); configPath() != dir {
			t.Errorf("%s, want %s", configPath(), dir)
		}
	}
	t.Setenv("VERBENA_RSOCKET_CONFIG", "/three")
	if configPath() != "/three" {
		t.Errorf("%s, want that of the environment", configPath())
	}
}

// A deadline that is changed just when it expires: the timer that is late does not expire the new one.
func TestDeadlineThatIsChangedAsItExpires(t *testing.T) {
	var d deadline
	d.set(time.Now().Add(time.Hour))
	d.timer.Stop()
	begun, goOn := make(chan struct{}), make(chan struct{})
	old := d.over
	d.timer = time.AfterFunc(0, func() { close(begun); <-goOn; close(old) })
	<-begun
	d.set(time.Now().Add(time.Hour))
	close(goOn)
	<-old
	if d.expired() {
		t.Error("the late timer has expired the new deadline")
	}
	d.set(time.Now().Add(-time.Second)) // closes a channel, of which nobody else closes it
	if !d.expired() {
		t.Error("not expired")
	}
}

// The polls of a clock that stands still are bounded, whatever the limit.
func TestPollsOfAClockThatStandsStill(t *testing.T) {
	for limit, want := range map[time.Duration]int{0: 64, time.Microsecond: 64, 64 * aPoll: 64, 65 * aPoll: 65,
		time.Millisecond: 20000, time.Hour: 1 << 16} {
		if got := still(limit); got != want {
			t.Errorf("%v: %d, want %d", limit, got, want)
		}
	}
}

// Numbers are 0 to 2^30. Others have the default.
func TestR_CFG_02_Numbers(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]int{
		"0": 0, "1\n": 1, " 77 ": 77, "1073741824": 1 << 30, "1073741825": 9, "-1": 9, "": 9, "x": 9, "1.5": 9,
		"99999999999999999999": 9,
	} {
		if err := os.WriteFile(filepath.Join(dir, "number"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := number(dir, "number", 9); got != want {
			t.Errorf("%q is %d, want %d", text, got, want)
		}
	}
}
