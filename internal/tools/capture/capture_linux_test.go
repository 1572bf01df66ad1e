package capture

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/internal/link/pcap"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

func capture(args ...string) (status int, stdout, stderr string) {
	var o, e bytes.Buffer
	status = run(&tool.Env{Argv0: "verbena capture", Stdout: &o, Stderr: &e}, args)
	return status, o.String(), e.String()
}

// Usage errors name the remedy.
func TestMisused(t *testing.T) {
	for line, want := range map[string]string{
		"":                                    "-i DEVICE",
		"-i vrb_lo more":                      `unexpected arguments ["more"]: -i names the device`,
		"-i vrb_lo --colour":                  "colour",
		"-i vrb_lo -s 5":                      "snaplen 5: must be 0 (whole packets) or 128 to 65536",
		"-i vrb_lo -c -1":                     "count -1: must be at least 0 (0: no limit)",
		"-i vrb_lo -a -1":                     "autostop -1: must be 0 to",
		"-i vrb_lo -a NaN":                    "autostop NaN: must be 0 to",
		"-i vrb_lo -a 1 -w /no/such/folder/x": "no such file or directory; name another file with -w",
		"-i vrb_lo -a 1 -w /":                 "is a directory; name another file with -w",
		"-i vrb_low":                          `no device "vrb_low"; there are vrb_lo`,
	} {
		t.Setenv("VERBENA_DEVICES", "vrb_lo=127.0.0.1")
		status, _, stderr := capture(strings.Fields(line)...)
		if status == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%q: %d %q, want %q", line, status, stderr, want)
		}
	}
}

// If no program uses the device, the file is a valid capture without packets.
func TestCaptureWithoutPrograms(t *testing.T) {
	t.Setenv("VERBENA_DEVICES", "vrb_nobody=127.0.0.1")
	file := filepath.Join(t.TempDir(), "x.pcapng")
	status, _, stderr := capture("-i", "vrb_nobody", "-a", "0.3", "-w", file)
	for _, want := range []string{
		", into " + file + ";", "0 packets captured", "on vrb_nobody; verbena rdma resource show qp",
	} {
		if status != 0 || !strings.Contains(stderr, want) {
			t.Fatalf("%d %q, want %q", status, stderr, want)
		}
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewNgReader(f, pcapgo.NgReaderOptions{WantMixedLinkType: true, SkipUnknownVersion: true})
	if err == nil {
		_, _, err = r.ReadPacketData()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("an empty capture: %v", err)
	}
}

// killer sends SIGTERM to the process when the capture has begun.
type killer struct{ bytes.Buffer }

func (k *killer) Write(b []byte) (int, error) {
	if bytes.HasPrefix(b, []byte("capturing on ")) {
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
	}
	return k.Buffer.Write(b)
}

// SIGTERM, which kill, timeout and systemd send, ends a capture as Ctrl-C does.
func TestTerminated(t *testing.T) {
	t.Setenv("VERBENA_DEVICES", "vrb_nobody=127.0.0.1")
	var stderr killer
	status := run(&tool.Env{Argv0: "verbena capture", Stdout: io.Discard, Stderr: &stderr},
		[]string{"-i", "vrb_nobody", "-w", "-"})
	if status != 0 || !strings.Contains(stderr.String(), "0 packets captured") {
		t.Errorf("%d %q", status, stderr.String())
	}
}

// merge reads the programs' streams with a merger.
func merge(most int, programs ...io.Reader) (out []byte, n int, err error) {
	var b bytes.Buffer
	_, cancel := context.WithCancel(context.Background())
	defer cancel()
	m := &merger{out: &b, max: most, full: cancel}
	b.Write(pcap.AppendSection(nil))
	for _, p := range programs {
		m.read(p, "vrb_test", "")
	}
	return b.Bytes(), m.n, errors.Join(m.err, m.bad)
}

// block returns a packet block of n bytes, as a program sends it.
func block(n int) []byte {
	length := 28 + (n+3)&^3 + 4
	b := make([]byte, length)
	b[0], b[4], b[5], b[20], b[24] = 6, byte(length), byte(length>>8), byte(n), byte(n)
	b[length-4], b[length-3] = byte(length), byte(length>>8)
	return b
}

// Two programs become two interfaces of one capture. An independent reader checks it.
func TestMerge(t *testing.T) {
	one := bytes.NewReader(append(block(40), block(60)...))
	two := bytes.NewReader(block(100))
	out, n, err := merge(0, one, two)
	if n != 3 || err != nil {
		t.Fatalf("%d packets, %v", n, err)
	}
	r, err := pcapgo.NewNgReader(bytes.NewReader(out), pcapgo.NgReaderOptions{WantMixedLinkType: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct{ iface, n int }{{0, 40}, {0, 60}, {1, 100}} {
		data, ci, err := r.ReadPacketData()
		if err != nil || ci.InterfaceIndex != want.iface || len(data) != want.n {
			t.Errorf("a packet of %d bytes from interface %d, %v; want %+v", len(data), ci.InterfaceIndex, err, want)
		}
	}
}

// The packets before a truncated block, an invalid block or a full disk are kept.
func TestMergeBad(t *testing.T) {
	whole := block(40)
	for _, c := range []struct {
		name, says, err string
		packets         int
	}{
		{"nothing", "", "", 0},
		{"cut", string(whole) + string(whole[:20]), "", 1},
		{"cut in the head", string(whole) + string(whole[:5]), "", 1},
		{"garbage", string(whole) + "HTTP/1.1 400 Bad Request, and so on", "invalid packet", 1},
		{"too long", string(whole) + "\x06\x00\x00\x00\xff\xff\xff\xff", "invalid packet", 1},
		{"too short", string(whole) + "\x06\x00\x00\x00\x08\x00\x00\x00", "invalid packet", 1},
	} {
		out, n, err := merge(0, strings.NewReader(c.says))
		if n != c.packets || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %d packets, %v", c.name, n, err)
		}
		if c.packets > 0 && !bytes.HasSuffix(out, whole) {
			t.Errorf("%s: the last packet is truncated", c.name)
		}
	}
	m := &merger{out: fullDisk{}, full: func() {}}
	m.read(bytes.NewReader(whole), "vrb_test", "")
	if m.n != 0 || m.err == nil {
		t.Errorf("a full disk: %d packets, %v", m.n, m.err)
	}
}

// A program that sends anything but packets ends its own part of the capture only. Root captures the programs of all
// users.
func TestMergeHostile(t *testing.T) {
	lie := block(40) // a packet that is longer than its block
	lie[20] = 200
	for name, bad := range map[string]string{"garbage": "HTTP/1.1 400 Bad Request", "length": string(lie)} {
		out, n, err := merge(0, strings.NewReader(bad), bytes.NewReader(block(60)))
		if n != 1 || !bytes.HasSuffix(out, block(60)) {
			t.Errorf("%s: %d packets", name, n)
		}
		if err == nil || !strings.Contains(err.Error(), "invalid packet") {
			t.Errorf("%s: %v", name, err)
		}
		if bytes.Contains(out, []byte(bad)) {
			t.Errorf("%s: it is in the capture", name)
		}
	}
}

// Another user cannot fill the memory of root's capture by any number of programs.
func TestProgramsOfAnotherUser(t *testing.T) {
	m := &merger{full: func() {}}
	own, other := os.Geteuid(), os.Geteuid()+1
	for i := range 2 * mostOfUser {
		if !m.join(own) {
			t.Fatalf("program %d of this user", i)
		}
		if got := m.join(other); got != (i < mostOfUser) {
			t.Fatalf("program %d of another user: %t", i, got)
		}
	}
	if m.bad == nil || !strings.Contains(m.bad.Error(), "not all are captured") {
		t.Error(m.bad)
	}
	if !m.join(other + 1) {
		t.Error("a third user")
	}
	m.leave(other)
	if !m.join(other) {
		t.Error("after one has ended")
	}
}

// A program that is left out, since its user has too many, is not taken for one that is captured: it is tried again.
func TestProgramThatIsLeftOut(t *testing.T) {
	program(t, 0)
	stream, err := control.Capture(control.Name(os.Geteuid(), os.Getpid()), "vrb_test", "")
	if err != nil {
		t.Fatal(err)
	}
	captured := true
	m := &merger{over: true} // it accepts nobody
	m.take(t.Context(), stream, "vrb_test", func(packets bool) { captured = packets })
	if captured {
		t.Error("it counts as captured")
	}
}

// -c limits the number of packets.
func TestMergeMost(t *testing.T) {
	if _, n, err := merge(2, bytes.NewReader(bytes.Repeat(block(40), 9))); n != 2 || err != nil {
		t.Errorf("%d packets, %v", n, err)
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// Follow finds a running program by itself and copies its packets as they arrive.
func TestFollow(t *testing.T) {
	snaps := program(t, 0)
	c, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var out bytes.Buffer
	if n, err := Follow(c, "vrb_test", &out, Limits{Packets: 5, Snap: 200}, nil); n != 5 || err != nil || c.Err() != nil {
		t.Errorf("%d packets, %v, %v", n, err, c.Err())
	}
	if s := <-snaps; s != "snap 200\n" {
		t.Errorf("the program received %q", s)
	}
}

// A program that cannot answer at first, since it answers many other questions, is asked again.
func TestFollowBusyProgram(t *testing.T) {
	program(t, 3)
	c, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	n, err := Follow(c, "vrb_test", io.Discard, Limits{Packets: 5, Snap: 200}, nil)
	if n != 5 || err != nil || c.Err() != nil {
		t.Errorf("%d packets, %v, %v", n, err, c.Err())
	}
}

// program has this process answer questions as a program with a device, except for the first ones, whose connections it
// closes. The channel gets the captures' snap requests.
func program(t *testing.T, refused int) (snaps chan string) {
	t.Helper()
	l, err := net.Listen("unix", control.Name(os.Geteuid(), os.Getpid()))
	if err != nil {
		t.Skip("no abstract unix sockets here:", err)
	}
	t.Cleanup(func() { l.Close() })
	snaps = make(chan string, 10)
	go func() {
		for n := 0; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if n < refused {
				conn.Close()
				continue
			}
			go answer(conn, snaps)
		}
	}()
	return snaps
}

// answer plays a program with a device. It sends the capture's snap request to snaps.
func answer(conn net.Conn, snaps chan<- string) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	question, _ := r.ReadString('\n')
	switch words := strings.Fields(question); strings.Join(words[:min(2, len(words))], " ") {
	case control.AskReport:
		_ = json.NewEncoder(conn).Encode(control.Report{PID: os.Getpid()})
	case control.AskCapture + " vrb_test":
		go func() { // the reader closes the connection while more are written
			for range 9 {
				_, _ = conn.Write(block(40))
			}
		}()
		line, _ := r.ReadString('\n')
		snaps <- line
		_, _ = r.ReadByte() // until the reader closes the connection
	}
}

// output is a capture that can be inspected while it is written.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

var request = regexp.MustCompile(`QP 0x[0-9a-f]{6}, WR (\d+)(; sent again)?`)

// requests counts the packets of each work request, without retransmissions.
func (o *output) requests() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := make(map[string]int)
	for _, m := range request.FindAllStringSubmatch(o.b.String(), -1) {
		if m[2] == "" {
			n[m[1]]++
		}
	}
	return n
}

// Programs that live for milliseconds are captured from their first packet to their last, each packet once,
// no matter whether the capture or the program starts first. The end of the capture loses no packet.
func TestShortLives(t *testing.T) {
	c, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	before := newLife(t, 1)
	var out output
	ready := make(chan struct{})
	m := &merger{out: &out, full: cancel, ready: func() { close(ready) }}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := m.run(c, lifeName); err != nil {
			t.Error(err)
		}
	}()
	deadline := time.Now().Add(30 * time.Second)
	select {
	case <-ready:
	case <-done:
	}
	const lives = 20
	for i := range lives {
		newLife(t, 1000+i).end()
	}
	// Wait until the capture has found the program that was running before.
	for n := 0; n == 0 && time.Now().Before(deadline); n = out.requests()["500"] {
		before.write(500)
	}
	before.write(501)
	cancel()
	<-done
	before.end()
	got := out.requests()
	for i := range lives {
		if id := fmt.Sprint(1000 + i); got[id] != 1 {
			t.Errorf("the request of program %s was captured %d times", id, got[id])
		}
	}
	if got["501"] != 1 {
		t.Errorf("the last request was captured %d times", got["501"])
	}
}

var lifeName = fmt.Sprintf("vrb_life%d", os.Getpid())

// life is a program with two devices. It writes from the captured device to the other.
type life struct {
	t      *testing.T
	closes []func() error
	qp     *verbs.QP
	cq     *verbs.CQ
	wr     verbs.SendWR
}

// newLife starts a program, which has sent one request when newLife returns.
func newLife(t *testing.T, id int) *life {
	t.Helper()
	l := &life{t: t}
	var qps []*verbs.QP
	var mrs []*verbs.MR
	pid := os.Getpid()
	for i, name := range []string{lifeName, "vrb_another"} {
		if id == 1 {
			i += 2 // other addresses, for a second program at the same time
		}
		addr := netip.AddrFrom4([4]byte{127, byte(pid>>8)&0x3f | 0xc0, byte(pid), byte(i + 91)})
		dev := get(soft.New(soft.Config{Name: name, Addrs: []netip.Addr{addr}}))(t)
		ctx := get(dev.Open())(t)
		pd := get(ctx.AllocPD())(t)
		l.cq = get(ctx.CreateCQ(16, nil))(t)
		mr := get(pd.RegMR(make([]byte, 64), verbs.AccessLocalWrite|verbs.AccessRemoteWrite))(t)
		qp := get(pd.CreateQP(&verbs.QPInitAttr{
			Type: verbs.QPTypeRC, SendCQ: l.cq, RecvCQ: l.cq, Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1,
				MaxRecvSGE: 1},
		}))(t)
		l.closes = append([]func() error{qp.Close, mr.Close, l.cq.Close, pd.Close, ctx.Close}, l.closes...)
		qps, mrs = append(qps, qp), append(mrs, mr)
		if i%2 == 0 {
			l.qp = qp
			defer func(cq *verbs.CQ) { l.cq = cq; l.write(id) }(l.cq)
		}
	}
	for i := range qps {
		info := get(qps[1-i].LocalInfo())(t)
		if err := qps[i].Connect(info, nil); err != nil {
			t.Fatal(err)
		}
	}
	l.wr = verbs.SendWR{
		Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: []verbs.SGE{mrs[0].SGE(0, 8)},
		RemoteAddr: mrs[1].Addr(), RKey: mrs[1].RKey(),
	}
	return l
}

// write sends a request with this WR ID and waits for its completion.
func (l *life) write(id int) {
	l.t.Helper()
	l.wr.WRID = uint64(id)
	if err := l.qp.PostSend(l.wr); err != nil {
		l.t.Fatal(err)
	}
	var wcs [1]verbs.WC
	for deadline := time.Now().Add(20 * time.Second); ; {
		if n := get(l.cq.Poll(wcs[:]))(l.t); n == 1 {
			break
		}
		if time.Now().After(deadline) {
			l.t.Fatal("no completion")
		}
	}
	if err := wcs[0].Err(); err != nil {
		l.t.Fatal(err)
	}
}

func (l *life) end() {
	l.t.Helper()
	for _, f := range l.closes {
		if err := f(); err != nil {
			l.t.Error(err)
		}
	}
}

func get[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Another user with many sockets that look like those of programs does not keep a capture from other programs: a search
// asks few of them.
func TestManySocketsOfAnotherUser(t *testing.T) {
	defer func(was time.Duration) { mostTime = was }(mostTime)
	mostTime = 0
	var asked atomic.Int32
	for i := range 50 {
		l, err := net.Listen("unix", control.Name(os.Geteuid()+1, os.Getpid()*100+i))
		if err != nil {
			t.Skip("no abstract unix sockets here:", err)
		}
		defer l.Close()
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				asked.Add(1)
				conn.Close()
			}
		}()
	}
	c, cancel := context.WithTimeout(t.Context(), lookEvery/2) // one search
	defer cancel()
	if _, err := Follow(c, "vrb_a", io.Discard, Limits{}, nil); err != nil {
		t.Error(err)
	}
	if n := asked.Load(); n > 1 {
		t.Errorf("%d sockets were asked at once", n)
	}
}
