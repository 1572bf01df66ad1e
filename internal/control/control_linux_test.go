package control

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/fdset"
)

// TestMain lets the test binary be a process of another user.
func TestMain(m *testing.M) {
	const own = "CONTROL_TEST_NAMES" // so that two concurrent runs do not interfere
	if os.Getenv(own) == "" {
		os.Setenv(own, fmt.Sprintf("@verbena-test-%d-", os.Getpid()))
	}
	programs, captures = os.Getenv(own)+"control/", os.Getenv(own)+"capture/"
	switch os.Getenv("CONTROL_TEST") {
	case "ask":
		askAs()
	case "serve":
		serveAs()
	default:
		testTimeout.Store(int64(time.Second))
		os.Exit(m.Run())
	}
}

// patient makes the timeout long enough for a busy machine, in a test of which one half must happen within it.
func patient(t *testing.T) {
	was := testTimeout.Swap(int64(5 * time.Second))
	t.Cleanup(func() { testTimeout.Store(was) })
}

// A program answers with a report of one device and captures the given packets.
type program struct {
	asked    atomic.Int32
	captured chan string // device and announced of each capture
	snaps    chan int    // lengths that captures request; nil if they are not read
	packets  []byte      // of a capture; written repeatedly if flood is set
	flood    bool
}

func (p *program) Report(objects bool) Report {
	p.asked.Add(1)
	r := Report{PID: os.Getpid(), Comm: "test", Devices: []Device{{Name: "vrb_x"}}}
	if objects {
		r.Devices[0].Objects = &Objects{Contexts: []uint32{1}}
	}
	return r
}

func (p *program) Counters(device string) []Counter {
	if device != "vrb_x" {
		return nil
	}
	return []Counter{{"hw_counters/sent_pkts", 7}, {"counters/port_xmit_data", 1 << 63}}
}

func (p *program) Capture(c net.Conn, r *bufio.Reader, device, announced string) {
	if p.captured != nil {
		p.captured <- device + " " + announced
	}
	if p.snaps != nil {
		for {
			line, err := r.ReadSlice('\n')
			if err != nil {
				break
			}
			n, _ := SnapOf(line)
			p.snaps <- n
		}
		return
	}
	if p.flood {
		for {
			if _, err := c.Write(p.packets); err != nil {
				return
			}
		}
	}
	_, _ = c.Read(make([]byte, 1))
	_, _ = c.Write(p.packets)
}

func serve(t *testing.T, p *program) *Server {
	t.Helper()
	s, err := Serve(p)
	if err != nil {
		t.Skip("no abstract unix sockets here:", err)
	}
	t.Cleanup(s.Close)
	return s
}

// dial connects to a server and sends text.
func dial(t *testing.T, name, says string) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(c, says)
	return c
}

// alive checks that a server answers.
func alive(t *testing.T, s *Server) {
	t.Helper()
	if r, err := report(s.Name, AskReport, new(budgets)); err != nil || r.Comm != "test" || len(r.Devices) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
}

func TestReport(t *testing.T) {
	s := serve(t, &program{})
	alive(t, s)
	r, err := report(s.Name, AskObjects, new(budgets))
	if err != nil || r.Devices[0].Objects == nil || r.PID != os.Getpid() {
		t.Errorf("%+v, %v", r, err)
	}
	list, _, err := Reports(false)
	if err != nil || !slices.ContainsFunc(list, func(r Report) bool { return r.Comm == "test" && r.PID == os.Getpid() }) {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestCounters(t *testing.T) {
	s := serve(t, &program{})
	for device, want := range map[string]string{
		"vrb_x": "hw_counters/sent_pkts 7\ncounters/port_xmit_data 9223372036854775808\n", "vrb_y": "", "": "",
	} {
		text, err := io.ReadAll(dial(t, s.Name, "counters "+device+"\n"))
		if err != nil || string(text) != want {
			t.Errorf("%q: %q, %v: must be %q", device, text, err, want)
		}
	}
}

// TestInvalidQuestions checks that invalid questions end only their connection.
func TestInvalidQuestions(t *testing.T) {
	p := &program{captured: make(chan string, 100)}
	s := serve(t, p)
	rng := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 300)
	for i := range noise {
		noise[i] = byte(rng.UintN(256))
	}
	for _, says := range []string{
		"\n", " \n", "\x00\x00\n", "frob\n", "report", strings.Repeat("x", 1000), strings.Repeat("report ", 1000) + "\n",
		"GET / HTTP/1.1\r\n\r\n",
		string(noise) + "\n", "REPORT\n",
	} {
		c := dial(t, s.Name, says)
		b, err := io.ReadAll(c)
		if errors.Is(err, os.ErrDeadlineExceeded) || len(b) > 0 {
			t.Errorf("%.20q: %d bytes, %v", says, len(b), err)
		}
		alive(t, s)
	}
	if n := p.asked.Load(); n != 10 { // by alive
		t.Errorf("%d reports were made", n)
	}
}

// TestManyAskers checks that connections beyond the limit are closed, and that silent ones end soon.
func TestManyAskers(t *testing.T) {
	patient(t)
	s := serve(t, &program{})
	var idle []net.Conn
	for range mostAskers {
		idle = append(idle, dial(t, s.Name, ""))
	}
	deadline := time.Now().Add(20 * time.Second)
	for count := 0; count < mostAskers && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		s.mu.Lock()
		count = len(s.conns)
		s.mu.Unlock()
	}
	if _, err := report(s.Name, AskReport, new(budgets)); err == nil {
		t.Error("a connection beyond the limit is answered")
	}
	for _, c := range idle { // each is closed
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	alive(t, s)
}

// TestAcceptFails checks that a server continues after a lack of descriptors.
func TestAcceptFails(t *testing.T) {
	name := Name(os.Geteuid(), 1<<30+50)
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Skip("no abstract unix sockets here:", err)
	}
	s := &Server{Name: name, program: &program{}, listener: l, conns: make(map[net.Conn]bool)}
	s.serving.Add(1)
	go s.accept(&poorListener{Listener: l})
	alive(t, s)
	s.Close()
}

// A poorListener fails for the first two connections, as without descriptors.
type poorListener struct {
	net.Listener
	failed int
}

func (l *poorListener) Accept() (net.Conn, error) {
	if l.failed++; l.failed <= 2 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// TestCaptureUnread checks that a capture that is not read does not delay the end of the program, and gets the
// packets that fit.
func TestCaptureUnread(t *testing.T) {
	p := &program{captured: make(chan string, 1), packets: make([]byte, 1<<16), flood: true}
	s := serve(t, p)
	dial(t, s.Name, "capture vrb_x @announced\n")
	if got := <-p.captured; got != "vrb_x @announced" {
		t.Errorf("%q", got)
	}
	alive(t, s)
	begun := time.Now()
	s.Close()
	if d := time.Since(begun); d > 20*parting {
		t.Errorf("Close took %v", d)
	}
}

// TestCaptureGetsTheRest checks that the remaining packets of a capture arrive when the program ends.
func TestCaptureGetsTheRest(t *testing.T) {
	p := &program{captured: make(chan string, 1), packets: []byte("the last packet")}
	s := serve(t, p)
	stream, err := Capture(s.Name, "vrb_x", "")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	<-p.captured
	go s.Close()
	if b, err := io.ReadAll(stream); err != nil || string(b) != "the last packet" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestSnap checks that the requested packet length arrives, in captures and calls, and that invalid requests are
// ignored.
func TestSnap(t *testing.T) {
	p := &program{snaps: make(chan int, 3)}
	s := serve(t, p)
	stream, err := Capture(s.Name, "vrb_x", "")
	if err != nil {
		t.Fatal(err)
	}
	stream.Snap(512)
	stream.Snap(0)
	if a, b := <-p.snaps, <-p.snaps; a != 512 || b != 0 {
		t.Errorf("%d, %d", a, b)
	}
	stream.Close()
	for _, line := range []string{"", "\n", "snap\n", "snap x\n", "crop 7\n"} {
		if n, ok := SnapOf([]byte(line)); ok {
			t.Errorf("%q: %d", line, n)
		}
	}
}

// TestStaleNames checks that names of ended processes and lines of other sockets are left out.
func TestStaleNames(t *testing.T) {
	file := filepath.Join(t.TempDir(), "unix")
	dead := Name(os.Geteuid(), 1<<30+99)
	err := os.WriteFile(file, []byte("Num       RefCount Protocol Flags    Type St Inode Path\n"+
		"0000000000000000: 00000002 00000000 00010000 0001 01 111 "+dead+"\n"+
		"0000000000000000: 00000002 00000000 00010000 0001 01 111 "+dead+"\n"+
		"0000000000000000: 00000003 00000000 00000000 0001 03 112 "+Name(os.Geteuid(), 7)+"\n"+
		"0000000000000000: 00000002 00000000 00010000 0001 01 113 /run/x\n"+
		"0000000000000000: 00000002 00000000 00010000 0001 01 114\n\nshort\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func(old string) { sockets = old }(sockets)
	sockets = file
	if names, err := Processes(); err != nil || !slices.Equal(names, []string{dead}) {
		t.Errorf("%q, %v", names, err)
	}
	if list, silent, err := Reports(false); err != nil || len(list)+len(silent) != 0 {
		t.Errorf("%v %v %v", list, silent, err)
	}
	if _, err := Capture(dead, "vrb_x", ""); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
	sockets = filepath.Join(t.TempDir(), "missing")
	if _, _, err := Reports(false); err == nil {
		t.Error("no error without a list")
	}
}

// TestImpostors checks that a socket of another user under a false name is neither trusted nor called.
func TestImpostors(t *testing.T) {
	other := os.Geteuid() + 1
	for _, name := range []string{Name(other, os.Getpid()), announcement(other, 0), programs + "root/1",
		programs + "99999999999/1"} {
		l, err := net.Listen("unix", name)
		if err != nil {
			t.Skip(err)
		}
		defer l.Close()
		if _, _, err := ask(name, AskReport); !errors.Is(err, syscall.EPERM) {
			t.Errorf("%s: %v", name, err)
		}
		if c := call(name); c != nil {
			c.Close()
			t.Errorf("%s is called", name)
		}
	}
}

// TestSameNumberTwice checks that two processes with one number, of two PID namespaces, are both asked.
func TestSameNumberTwice(t *testing.T) {
	a, b := serve(t, &program{}), serve(t, &program{})
	if a.Name == b.Name {
		t.Fatalf("both are %s", a.Name)
	}
	alive(t, a)
	alive(t, b)
	names, err := Processes()
	if err != nil || !slices.Contains(names, a.Name) || !slices.Contains(names, b.Name) {
		t.Errorf("%q, %v", names, err)
	}
}

// TestOtherPIDNamespace checks that processes without a number in this PID namespace, as those of other containers of
// a pod, are told apart although they have the same number, name and user.
func TestOtherPIDNamespace(t *testing.T) {
	a, b := serve(t, &program{}), serve(t, &program{})
	for _, c := range []struct {
		pid  int
		want [2]string
	}{
		{7, [2]string{"7", "7"}},
		{0, [2]string{strings.TrimPrefix(a.Name, programs), strings.TrimPrefix(b.Name, programs)}},
	} {
		for i, s := range []*Server{a, b} {
			r := Report{PID: os.Getpid(), Comm: "test"}
			if r.locate(s.Name, c.pid); r.ID() != c.want[i] || r.PID != c.pid {
				t.Errorf("%s with number %d is %s, %d, want %s", s.Name, c.pid, r.ID(), r.PID, c.want[i])
			}
		}
	}
}

// TestAnnounce checks that a program that opens a device calls the announced captures, except the skipped ones.
func TestAnnounce(t *testing.T) {
	calls := make(chan *Call, 10)
	a, err := Announce(func(c *Call) { calls <- c })
	if err != nil {
		t.Skip("no abstract unix sockets here:", err)
	}
	defer a.Close()
	b, err := Announce(func(c *Call) { calls <- c })
	if err != nil {
		t.Fatal(err)
	}
	if got := CallCaptures("@me", "vrb_x", func(string) bool { return true }); len(got) != 0 {
		t.Errorf("skipped ones are called: %v", got)
	}
	before := len(fdset.Descriptors())
	got := CallCaptures("@me", "vrb_x", func(n string) bool { return n == b.Name })
	if len(got) != 1 || got[a.Name] == nil {
		t.Fatalf("%v are called", got)
	}
	if n := len(fdset.Descriptors()); n != before+1 { // a child that is forked closes the connection
		t.Errorf("%d descriptors with a connection, %d before", n, before)
	}
	fmt.Fprint(got[a.Name], "packets")
	got[a.Name].Close()
	c := <-calls
	if rest, err := io.ReadAll(c); c.Process != "@me" || c.Device != "vrb_x" || string(rest) != "packets" || err != nil {
		t.Errorf("%q %q %q %v", c.Process, c.Device, rest, err)
	}
	b.Close()
	if got := CallCaptures("@me", "vrb_x", func(n string) bool { return n == a.Name }); len(got) != 0 {
		t.Errorf("an ended capture is called: %v", got)
	}
}

// TestAnnounceBounds checks the limit of announced captures, and that callers that send nothing or invalid lines are
// dropped.
func TestAnnounceBounds(t *testing.T) {
	take := func(c *Call) { t.Errorf("%q calls", c.Process); c.Close() }
	var all []*Announcement
	for range slots {
		a, err := Announce(take)
		if err != nil {
			t.Skip(err)
		}
		defer a.Close()
		all = append(all, a)
	}
	if _, err := Announce(take); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("one more: %v", err)
	}
	for _, says := range []string{"", "\n", "one\n", "one two three\n", strings.Repeat("x", 1<<19)} {
		if _, err := io.ReadAll(dial(t, all[0].Name, says)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%.20q is not dropped", says)
		}
	}
}

// TestIntroductionIsShort checks that a caller cannot make a capture read, and keep, a line without an end.
func TestIntroductionIsShort(t *testing.T) {
	a, err := Announce(func(c *Call) { t.Errorf("%q calls", c.Process); c.Close() })
	if err != nil {
		t.Skip(err)
	}
	defer a.Close()
	c, err := net.Dial("unix", a.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const most = 16 << 20
	n, err := io.Copy(c, io.LimitReader(endless{}, 4*most))
	if err == nil || n > most {
		t.Errorf("%d bytes were read (%v), want an error within %d", n, err, most)
	}
}

// nobody is the user of the second process.
const nobody = 65534

// as runs this test binary as another user and returns its output.
func as(t *testing.T, role, arg string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can run a process as another user")
	}
	dir := t.TempDir()
	for d := dir; d != filepath.Clean(os.TempDir()); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "control.test")
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, arg)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "CONTROL_TEST="+role)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody},
		Pdeathsig: syscall.SIGKILL}
	return cmd
}

// askAs asks a server.
func askAs() {
	_, err := report(os.Args[1], AskReport, new(budgets))
	if c, cerr := Capture(os.Args[1], "vrb_x", ""); cerr == nil { // else it hung up at once
		if b, _ := io.ReadAll(c); len(b) > 0 {
			fmt.Printf("captured %q\n", b)
		}
	}
	fmt.Println(err, errors.Is(err, fs.ErrPermission))
}

// serveAs answers until its input ends.
func serveAs() {
	s, err := Serve(&program{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Name)
	if os.Args[1] == "self" {
		_, err := report(s.Name, AskReport, new(budgets))
		fmt.Println("self", err)
	}
	for name, c := range CallCaptures(s.Name, "vrb_x", func(string) bool { return false }) {
		fmt.Println("called", name)
		c.Close()
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// TestOtherUserAsks checks that another user gets only the reason for the refusal from root's program.
func TestOtherUserAsks(t *testing.T) {
	p := &program{packets: []byte("secret"), captured: make(chan string, 1)}
	s := serve(t, p)
	out, err := as(t, "ask", s.Name).CombinedOutput()
	if err != nil || strings.Contains(string(out), "captured") || !strings.Contains(string(out),
		"refused: a program answers its own user, here 0, and root true") {
		t.Errorf("%v %s", err, out)
	}
	if p.asked.Load() != 0 || len(p.captured) != 0 {
		t.Error("the program was asked")
	}
	alive(t, s)
}

// TestUnmappedUser checks that a program in a user namespace that runs there as nobody, whose number stands for all
// users without one too, answers itself and not these.
func TestUnmappedUser(t *testing.T) {
	cmd := as(t, "serve", "self")
	ids := []syscall.SysProcIDMap{{ContainerID: nobody, HostID: nobody, Size: 1}}
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
	cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = ids, ids
	cmd.SysProcAttr.Credential.NoSetGroups = true
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skip("no user namespaces here:", err)
	}
	defer time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() }).Stop()
	out := bufio.NewReader(pipe)
	name, _ := out.ReadString('\n')
	name = strings.TrimSpace(name)
	if self, _ := out.ReadString('\n'); self != "self <nil>\n" {
		t.Errorf("asked by itself: %q", self)
	}
	ask := as(t, "ask", name)
	ask.SysProcAttr.Credential.Uid = nobody - 1
	if got, err := ask.CombinedOutput(); err != nil || !strings.Contains(string(got), "refused") ||
		strings.Contains(string(got), "captured") {
		t.Errorf("asked by a user without a number: %v %s", err, got)
	}
	in.Close()
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestRootSeesOtherUsers checks that root sees the programs of others, and that they call its captures.
func TestRootSeesOtherUsers(t *testing.T) {
	calls := make(chan *Call, 1)
	a, err := Announce(func(c *Call) { calls <- c })
	if err != nil {
		t.Skip(err)
	}
	defer a.Close()
	cmd := as(t, "serve", "")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	name := Name(nobody, cmd.Process.Pid)
	select {
	case c := <-calls:
		if c.Process != name || c.Device != "vrb_x" {
			t.Errorf("%q %q calls", c.Process, c.Device)
		}
		c.Close()
	case <-time.After(20 * time.Second):
		t.Error("no program calls")
	}
	r, err := report(name, AskReport, new(budgets))
	if err != nil || r.PID != cmd.Process.Pid || r.Comm != "test" {
		t.Errorf("%+v, %v", r, err)
	}
	in.Close()
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "called "+a.Name) {
		t.Errorf("%v %s", err, out.String())
	}
}

// TestSources checks that sources add to reports until they are removed.
func TestSources(t *testing.T) {
	remove := AddSource(func(r *Report) { r.Comm += "+" })
	r := Report{Comm: "x"}
	Complete(&r)
	remove()
	Complete(&r)
	if b, _ := json.Marshal(r); r.Comm != "x+" {
		t.Errorf("%s", b)
	}
}
