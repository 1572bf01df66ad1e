package soft_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/apart"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/udp"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// memberTest is the test that another process runs to become a member of a domain.
const memberTest = "TestMemberOfADomain"

// member is another process with the same device and the domain of the same file. It answers commands.
type member struct {
	t     testing.TB
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
}

// newMember starts a member.
func newMember(t testing.TB, addr netip.Addr, path string) *member {
	m := &member{t: t, cmd: child(memberTest, "member "+addr.String()+" "+path), lines: make(chan string)}
	m.in = get(m.cmd.StdinPipe())(t)
	out := get(m.cmd.StdoutPipe())(t)
	m.cmd.Stderr = os.Stderr
	must(t, m.cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for s := bufio.NewScanner(out); s.Scan(); {
			if line, ok := strings.CutPrefix(s.Text(), "> "); ok {
				m.lines <- line
			}
		}
		close(m.lines)
	}()
	t.Cleanup(func() {
		_ = m.in.Close()
		_ = m.cmd.Process.Kill()
		for range m.lines { //nolint:revive // until the end
		}
		<-ended
		_ = m.cmd.Wait()
	})
	return m
}

// do makes the member do something, and returns its answer.
func (m *member) do(format string, args ...any) string {
	m.t.Helper()
	line := fmt.Sprintf(format, args...)
	if _, err := fmt.Fprintln(m.in, line); err != nil {
		m.t.Fatalf("%s: %v", line, err)
	}
	select {
	case answer, ok := <-m.lines:
		if !ok {
			m.t.Fatalf("%s: the member has ended", line)
		}
		return answer
	case <-time.After(30 * time.Second):
		m.t.Fatalf("%s: no answer", line)
	}
	return ""
}

// want is do for a command with a known answer.
func (m *member) want(answer, format string, args ...any) {
	m.t.Helper()
	if got := m.do(format, args...); got != answer {
		m.t.Errorf("%s: %q, want %q", fmt.Sprintf(format, args...), got, answer)
	}
}

// srq makes an SRQ in the member, with the CQ of all its SRQs.
func (m *member) srq() (num, rkey uint32, addr uint64) {
	m.t.Helper()
	if _, err := fmt.Sscan(m.do("srq"), &num, &rkey, &addr); err != nil {
		m.t.Fatal(err)
	}
	return num, rkey, addr
}

// xrcdDevice makes the device of all members.
func xrcdDevice(t testing.TB, addr netip.Addr) *soft.Device {
	return get(soft.New(softlink.On(soft.Config{Name: "vrb_xrcd", Addrs: []netip.Addr{addr}, Shards: 1},
		softlink.Links{Open: sharedUDP})))(t)
}

// sharedUDP opens UDP at an address that several processes share.
func sharedUDP(addrs []netip.Addr, ports int) (link.Link, error) {
	return udp.Open(udp.Config{Addrs: addrs, Ports: ports, Port: testPort, Shared: true})
}

// TestMemberOfADomain is a member; see newMember.
func TestMemberOfADomain(t *testing.T) {
	var addr, path string
	if n, _ := fmt.Sscanf(os.Getenv(childRole), "member %s %s", &addr, &path); n != 2 {
		t.Skip("for other tests")
	}
	e := newEnd(t, xrcdDevice(t, netip.MustParseAddr(addr)))
	s := servant{end: e, t: t, path: path}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		verb, args, _ := strings.Cut(in.Text(), " ")
		fmt.Println(">", s.obey(verb, args))
	}
	os.Exit(0)
}

// servant is a member in its own process.
type servant struct {
	*end
	t    *testing.T
	path string
	d    *verbs.XRCD
	srqs []*verbs.SRQ
	qp   *verbs.QP // a handle of a QP of another process
}

func (s *servant) obey(verb, args string) string {
	num := uint32(0)
	_, _ = fmt.Sscan(args, &num)
	switch verb {
	case "open": // flags
		f := get(os.OpenFile(s.path, os.O_RDWR, 0))(s.t)
		defer f.Close()
		d, err := s.ctx.OpenXRCD(&verbs.XRCDInitAttr{File: f, OFlags: int(num)})
		s.d = d
		return errorName(err)
	case "close":
		return errorName(s.d.Close())
	case "srq":
		q := get(s.pd.CreateSRQ(&verbs.SRQInitAttr{
			Attr: verbs.SRQAttr{MaxWR: 64, MaxSGE: 4}, Type: verbs.SRQTypeXRC, XRCD: s.d, CQ: s.cq,
		}))(s.t)
		s.srqs = append(s.srqs, q)
		return fmt.Sprint(get(q.Num())(s.t), s.mr.RKey(), s.mr.Addr())
	case "end": // SRQ index
		return errorName(s.srqs[num].Close())
	case "recv": // SRQ index, request ID, offset, size
		var id uint64
		var at, n int
		_, _ = fmt.Sscan(args, &num, &id, &at, &n)
		return errorName(s.srqs[num].PostRecv(verbs.RecvWR{WRID: id, SGList: []verbs.SGE{s.mr.SGE(at, n)}}))
	case "sink": // takes all messages of the SRQs from now on
		for range 64 {
			must(s.t, s.srqs[0].PostRecv(recv(s.end, 0, 1<<16)))
		}
		go func() {
			for {
				s.good(1)
				must(s.t, s.srqs[0].PostRecv(recv(s.end, 0, 1<<16)))
			}
		}()
		return "ok"
	case "poll":
		wc := s.poll(1)[0]
		return fmt.Sprint(wc.WRID, " ", wc.Status, " ", wc.ByteLen, " ", wc.ImmData, " ", wc.QPNum)
	case "sum": // offset, size
		var at, n int
		_, _ = fmt.Sscan(args, &at, &n)
		return checksum(s.buf[at : at+n])
	case "fill":
		s.fill(byte(num))
		return "ok"
	case "word": // offset
		return fmt.Sprint(binary.NativeEndian.Uint64(s.buf[num:]))
	case "target":
		return fmt.Sprint(get(s.d.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeXRCRecv}))(s.t).QPN())
	case "handle": // QPN
		qp, err := s.ctx.OpenQP(&verbs.QPOpenAttr{QPNum: num, XRCD: s.d, Type: verbs.QPTypeXRCRecv})
		s.qp = qp
		return errorName(err)
	case "query":
		a, _, err := s.qp.Query(verbs.QPAttrState)
		return fmt.Sprint(a.QPState, " ", errorName(err))
	case "modify": // state
		return errorName(s.qp.Modify(&verbs.QPAttr{QPState: verbs.QPState(num)}, verbs.QPAttrState))
	case "drop":
		return errorName(s.qp.Close())
	case "event":
		ev := get(s.ctx.GetAsyncEvent(s.t.Context()))(s.t)
		ev.Ack()
		return ev.Type.String()
	}
	return "?"
}

func errorName(err error) string {
	var errno verbs.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

func checksum(b []byte) string {
	h := uint64(1)
	for _, c := range b {
		h = h*31 + uint64(c)
	}
	return fmt.Sprint(h)
}

// shared is a sender, the XRC_RECV QP that it is connected to, and the domain of that QP.
type shared struct {
	*end
	path   string
	addr   netip.Addr
	d      *verbs.XRCD
	qs, qr *verbs.QP
	srq    *verbs.SRQ
	num    uint32
}

// newShared makes a domain of a file in this process. last is the last part of the device's address.
func newShared(t testing.TB, last int) *shared {
	s := &shared{path: filepath.Join(t.TempDir(), "xrcd"), addr: loopback(last)}
	must(t, os.WriteFile(s.path, nil, 0o600))
	s.end = newEnd(t, xrcdDevice(t, s.addr))
	f := get(os.Open(s.path))(t)
	defer f.Close()
	s.d = s.openXRCD(&verbs.XRCDInitAttr{File: f, OFlags: os.O_CREATE})
	s.srq, s.num = s.xrcSRQ(s.d)
	s.qs, s.qr = s.qp(verbs.QPTypeXRCSend, nil), s.xrcRecv(s.d)
	join(t, s.qs, s.qr, &verbs.ConnectOptions{MinRNRTimer: 1})
	return s
}

// member starts a member that has opened the domain.
func (s *shared) member(t testing.TB) *member {
	m := newMember(t, s.addr, s.path)
	m.want("ok", "open %d", os.O_CREATE)
	return m
}

// TestX_XRCD_01_FlagsWithAnotherProcess: O_CREATE and O_EXCL see the domain of another process, until it is closed.
func TestX_XRCD_01_FlagsWithAnotherProcess(t *testing.T) {
	s := newShared(t, 80)
	m := newMember(t, s.addr, s.path)
	m.want("EINVAL", "open %d", os.O_CREATE|os.O_EXCL)
	m.want("ok", "open 0")
	m.want("ok", "close")
	path := filepath.Join(t.TempDir(), "other")
	must(t, os.WriteFile(path, nil, 0o600))
	o := newMember(t, s.addr, path)
	o.want("EAGAIN", "open 0")
	o.want("ok", "open %d", os.O_CREATE|os.O_EXCL)
	f := get(os.Open(path))(t)
	defer f.Close()
	d, err := s.ctx.OpenXRCD(&verbs.XRCDInitAttr{File: f})
	must(t, err)
	must(t, d.Close())
	must(t, o.cmd.Process.Kill())
	_ = o.cmd.Wait()
	if _, err := s.ctx.OpenXRCD(&verbs.XRCDInitAttr{File: f}); !errors.Is(err, verbs.EAGAIN) {
		t.Errorf("the domain of a process that has ended: %v", err)
	}
}

// TestX_XRCD_01_ProcessesShareAConnection: messages of one connection go to the SRQs of three processes, in order.
func TestX_XRCD_01_ProcessesShareAConnection(t *testing.T) {
	s := newShared(t, 81)
	s.fill(3)
	members := []*member{s.member(t), s.member(t)}
	nums := []uint32{s.num}
	for _, m := range members {
		num, _, _ := m.srq()
		nums = append(nums, num)
	}
	const rounds, size = 12, 9000
	for i := range rounds {
		must(t, s.srq.PostRecv(verbs.RecvWR{WRID: uint64(100 + i), SGList: []verbs.SGE{s.mr.SGE(1<<19, size)}}))
		for _, m := range members {
			m.want("ok", "recv 0 %d %d %d", 200+i, i*size, size)
		}
	}
	for i := range rounds {
		for j, num := range nums {
			wr := to(num, verbs.SendWR{Opcode: verbs.WRSendWithImm, ImmData: uint32(10*i + j), Flags: verbs.SendSignaled,
				SGList: []verbs.SGE{s.mr.SGE((3*i+j)*100, size-j)}})
			must(t, s.qs.PostSend(wr))
		}
	}
	sent, here := 0, 0
	for sent < 3*rounds || here < rounds {
		wc := s.poll(1)[0]
		switch {
		case wc.Status != verbs.WCSuccess:
			t.Fatalf("%+v", wc)
		case wc.QPNum == s.qs.QPN():
			sent++
		default:
			if wc.WRID != uint64(100+here) || wc.ImmData != uint32(10*here) || wc.ByteLen != size {
				t.Errorf("%+v", wc)
			}
			here++
		}
	}
	for j, m := range members {
		for i := range rounds {
			m.want(fmt.Sprint(200+i, " success ", size-1-j, " ", 10*i+j+1, " ", s.qr.QPN()), "poll")
			at := (3*i + j + 1) * 100
			m.want(checksum(s.buf[at:at+size-1-j]), "sum %d %d", i*size, size-1-j)
		}
	}
}

// TestX_XRCD_01_RDMAOfAnotherProcess: WRITE, READ and atomics reach the memory of the process whose SRQ they name.
func TestX_XRCD_01_RDMAOfAnotherProcess(t *testing.T) {
	s := newShared(t, 82)
	m := s.member(t)
	num, rkey, addr := m.srq()
	m.want("ok", "fill 6")
	m.want("ok", "recv 0 7 0 0")
	s.fill(5)
	rdma := func(op verbs.WROpcode, at, size int) verbs.SendWR {
		return verbs.SendWR{
			Opcode: op, Flags: verbs.SendSignaled, SGList: []verbs.SGE{s.mr.SGE(at, size)}, RemoteSRQN: num,
			RemoteAddr: addr + uint64(at), RKey: rkey, CompareAdd: 2, ImmData: 9,
		}
	}
	var was uint64
	_, err := fmt.Sscan(m.do("word %d", 1<<16), &was)
	must(t, err)
	must(t, s.srq.PostRecv(recv(s.end, 1, 10)))
	must(t, s.qs.PostSend(rdma(verbs.WRRDMAWrite, 0, 20000), rdma(verbs.WRRDMARead, 30000, 20000),
		to(s.num, send(s.end, 10)), rdma(verbs.WRAtomicFetchAndAdd, 1<<16, 8), rdma(verbs.WRRDMAWriteWithImm, 70000, 3000)))
	s.good(6)
	m.want(fmt.Sprint("7 success 3000 9 ", s.qr.QPN()), "poll")
	for _, r := range [][2]int{{0, 20000}, {30000, 20000}, {70000, 3000}} {
		m.want(checksum(s.buf[r[0]:r[0]+r[1]]), "sum %d %d", r[0], r[1])
	}
	m.want(fmt.Sprint(was+2), "word %d", 1<<16)
	if got := binary.NativeEndian.Uint64(s.buf[1<<16:]); got != was {
		t.Errorf("the atomic found %d, not %d", got, was)
	}
	wr := rdma(verbs.WRRDMAWrite, 0, 8)
	wr.RKey ^= 0x5500
	must(t, s.qs.PostSend(wr))
	if wc := s.poll(1)[0]; wc.Status != verbs.WCRemAccessErr {
		t.Errorf("%+v", wc)
	}
	if ev := s.event(t, verbs.EventQPAccessErr); ev != s.qr {
		t.Errorf("the event is of %v", ev)
	}
}

// event waits for an asynchronous event of a type, and returns its QP.
func (s *shared) event(t *testing.T, typ verbs.EventType) *verbs.QP {
	t.Helper()
	for range 4 {
		ev := get(s.ctx.GetAsyncEvent(t.Context()))(t)
		ev.Ack()
		if ev.Type == typ {
			return ev.QP
		}
	}
	t.Fatalf("no event %v", typ)
	return nil
}

// TestX_XRCD_01_NotReadyInAnotherProcess: a message for an SRQ of another process that is empty waits for a receive.
func TestX_XRCD_01_NotReadyInAnotherProcess(t *testing.T) {
	s := newShared(t, 83)
	m := s.member(t)
	num, _, _ := m.srq()
	must(t, s.qs.PostSend(to(num, send(s.end, 10))))
	for range 50 {
		if n := get(s.cq.Poll(make([]verbs.WC, 1)))(t); n != 0 {
			t.Fatal("the message is complete without a receive")
		}
		time.Sleep(time.Millisecond)
	}
	m.want("ok", "recv 0 4 0 10")
	s.good(1)
	m.want(fmt.Sprint("4 success 10 0 ", s.qr.QPN()), "poll")
}

// TestX_XRCD_01_UnknownSRQ: a message for an SRQ that no process has, or has no more, is refused.
func TestX_XRCD_01_UnknownSRQ(t *testing.T) {
	for name, srqn := range map[string]func(m *member) uint32{
		"closed":     func(m *member) uint32 { n, _, _ := m.srq(); m.want("ok", "end 0"); return n },
		"no process": func(*member) uint32 { return 0xF00001 },
	} {
		t.Run(name, func(t *testing.T) {
			s := newShared(t, 84)
			m := s.member(t)
			must(t, s.qs.PostSend(to(srqn(m), send(s.end, 10))))
			if wc := s.poll(1)[0]; wc.Status != verbs.WCRemInvReqErr {
				t.Errorf("%+v", wc)
			}
			s.event(t, verbs.EventQPReqErr)
			if a, _, err := s.qr.Query(verbs.QPAttrState); err != nil || a.QPState != verbs.QPSErr {
				t.Errorf("%v, %v", a.QPState, err)
			}
		})
	}
}

// TestX_XRCD_01_ProcessOfTheSRQEnds: a process that is killed ends the connections whose messages it was receiving, and
// no others.
func TestX_XRCD_01_ProcessOfTheSRQEnds(t *testing.T) {
	s := newShared(t, 85)
	m := s.member(t)
	num, _, _ := m.srq()
	m.want("ok", "recv 0 1 0 10")
	must(t, s.srq.PostRecv(recv(s.end, 1, 10), recv(s.end, 2, 10)))
	must(t, s.qs.PostSend(to(num, send(s.end, 10)), to(s.num, send(s.end, 10))))
	s.good(3)
	must(t, m.cmd.Process.Kill())
	_ = m.cmd.Wait()
	must(t, s.qs.PostSend(to(s.num, send(s.end, 10))))
	s.good(2)
	other := s.member(t)
	num, _, _ = other.srq()
	must(t, s.qs.PostSend(to(num, send(s.end, 10)))) // waits for a receive
	for range 20 {
		_ = get(s.cq.Poll(make([]verbs.WC, 1)))(t)
		time.Sleep(time.Millisecond)
	}
	must(t, other.cmd.Process.Kill())
	s.event(t, verbs.EventQPFatal)
	if wc := s.poll(1)[0]; wc.Status != verbs.WCRemOpErr && wc.Status != verbs.WCRetryExcErr {
		t.Errorf("%+v", wc)
	}
}

// TestX_XRCD_01_ResetWhileAnotherProcessReceives: RESET ends a QP in all processes, and it can be connected again.
func TestX_XRCD_01_ResetWhileAnotherProcessReceives(t *testing.T) {
	s := newShared(t, 86)
	m := s.member(t)
	num, _, _ := m.srq()
	for i := range 3 {
		m.want("ok", "recv 0 %d 0 10", i)
		must(t, s.qs.PostSend(to(num, send(s.end, 10))))
		s.good(1)
		m.want(fmt.Sprint(i, " success 10 0 ", s.qr.QPN()), "poll")
		for _, qp := range []*verbs.QP{s.qs, s.qr} {
			must(t, qp.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
		}
		join(t, s.qs, s.qr, nil)
	}
}

// TestX_QPO_01_QPOfAnotherProcess: a process has a handle of another's QP. It can query and modify the QP, gets its
// events, and keeps it when the other one closes its handle.
func TestX_QPO_01_QPOfAnotherProcess(t *testing.T) {
	s := newShared(t, 87)
	m, idle := s.member(t), s.member(t)
	m.want("EINVAL", "handle %d", s.qs.QPN())
	m.want("ok", "handle %d", s.qr.QPN())
	idle.want("ok", "handle %d", s.qr.QPN())
	m.want(fmt.Sprint(verbs.QPSRTS, " ok"), "query")
	idle.want("ok", "drop")
	must(t, s.qr.Close())
	must(t, s.srq.PostRecv(recv(s.end, 1, 10)))
	must(t, s.qs.PostSend(to(s.num, send(s.end, 10))))
	s.good(2)
	m.want("ok", "modify %d", verbs.QPSErr)
	m.want(fmt.Sprint(verbs.QPSErr, " ok"), "query")
	m.want("EINVAL", "modify %d", verbs.QPSRTS)
	m.want(verbs.EventQPLastWQEReached.String(), "event")
	m.want("ok", "modify %d", verbs.QPSReset)
	m.want("ok", "drop")
	m.want("EINVAL", "handle %d", 0x123456)
}

// TestX_QPO_01_ProcessOfTheQPEnds: a QP ends with the process that created it.
func TestX_QPO_01_ProcessOfTheQPEnds(t *testing.T) {
	s := newShared(t, 88)
	m := s.member(t)
	var qpn uint32
	_ = get(fmt.Sscan(m.do("target"), &qpn))(t)
	qp := get(s.ctx.OpenQP(&verbs.QPOpenAttr{QPNum: qpn, XRCD: s.d, Type: verbs.QPTypeXRCRecv}))(t)
	must(t, qp.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState))
	must(t, qp.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
	must(t, m.cmd.Process.Kill())
	if of := s.event(t, verbs.EventQPFatal); of != qp {
		t.Errorf("the event is of %v", of)
	}
	if a, _, err := qp.Query(verbs.QPAttrState); err != nil || a.QPState != verbs.QPSErr {
		t.Errorf("%v, %v", a.QPState, err)
	}
	if err := qp.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState); !errors.Is(err, unix.EIO) {
		t.Errorf("RESET of a QP whose process has ended: %v", err)
	}
	must(t, qp.Close())
}

// TestX_QPO_01_StoppedProcess: a handle of a QP does not wait for a stopped process for ever. It is lost then.
func TestX_QPO_01_StoppedProcess(t *testing.T) {
	s := newShared(t, 90)
	m := s.member(t)
	var qpn uint32
	_ = get(fmt.Sscan(m.do("target"), &qpn))(t)
	qp := get(s.ctx.OpenQP(&verbs.QPOpenAttr{QPNum: qpn, XRCD: s.d, Type: verbs.QPTypeXRCRecv}))(t)
	apart.Stop(t, m.cmd.Process)
	defer soft.SetHandleTimeout(50 * time.Millisecond)()
	if _, _, err := qp.Query(verbs.QPAttrState); !errors.Is(err, unix.ETIMEDOUT) {
		t.Errorf("a stopped process: %v", err)
	}
	must(t, m.cmd.Process.Signal(syscall.SIGCONT))
	if a, _, err := qp.Query(verbs.QPAttrState); err != nil || a.QPState != verbs.QPSErr {
		t.Errorf("afterwards: %v, %v", a.QPState, err)
	}
	must(t, qp.Close())
}

// BenchmarkXRC measures SENDs to an SRQ of this process and to one of another, whose packets this one forwards.
func BenchmarkXRC(b *testing.B) {
	for _, size := range []int{8, 1 << 16} {
		for _, where := range []string{"here", "another process"} {
			b.Run(fmt.Sprintf("%d bytes/%s", size, where), func(b *testing.B) {
				s := newShared(b, 89)
				num := s.num
				if where != "here" {
					m := s.member(b)
					num, _, _ = m.srq()
					m.want("ok", "sink")
				}
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if num == s.num {
						must(b, s.srq.PostRecv(recv(s.end, 0, size)))
						must(b, s.qs.PostSend(to(num, send(s.end, size))))
						s.good(2)
						continue
					}
					must(b, s.qs.PostSend(to(num, send(s.end, size))))
					s.good(1)
				}
			})
		}
	}
}
