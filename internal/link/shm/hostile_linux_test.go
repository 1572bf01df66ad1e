package shm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// TestMemoryIsSealed checks that only its creator can write memory that was passed on, and that its size is fixed.
func TestMemoryIsSealed(t *testing.T) {
	m, f, err := create(2 * page)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m.bytes[5] = 6
	fd := int(f.Fd())
	if _, err := unix.Mmap(fd, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Error("the memory can be mapped for writing")
	}
	if _, err := unix.Pwrite(fd, []byte{1}, 0); err == nil {
		t.Error("the memory can be written")
	}
	if unix.Ftruncate(fd, page) == nil || unix.Ftruncate(fd, 4*page) == nil {
		t.Error("the size can be changed")
	}
	again, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(fd), os.O_RDWR, 0)
	if err == nil { // opening is allowed; what counts is writing
		if _, err := again.Write([]byte{1}); err == nil {
			t.Error("the memory can be written through a new descriptor")
		}
		if _, err := unix.Mmap(int(again.Fd()), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
			t.Error("the memory can be mapped for writing through a new descriptor")
		}
		again.Close()
	}
	theirs, err := attach(fd, 2*page)
	if err != nil {
		t.Fatal(err)
	}
	if theirs.bytes[5] != 6 {
		t.Error("the content differs")
	}
	if unix.Mprotect(theirs.bytes, unix.PROT_READ|unix.PROT_WRITE) == nil {
		t.Error("the other end's mapping can be made writable")
	}
	m.bytes[5] = 7
	if theirs.bytes[5] != 7 {
		t.Error("not the same memory")
	}
}

// TestBadMemoryIsRefused checks that memory that could raise SIGBUS, or is too short, is refused.
func TestBadMemoryIsRefused(t *testing.T) {
	fd, err := unix.MemfdCreate("x", unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, page); err != nil {
		t.Fatal(err)
	}
	if _, err := attach(fd, page); !errors.Is(err, syscall.EPROTO) {
		t.Errorf("without seals: %v", err)
	}
	for _, seals := range []int{unix.F_SEAL_GROW, unix.F_SEAL_SHRINK, unix.F_SEAL_FUTURE_WRITE} {
		_, want := attach(fd, 2*page)
		if !errors.Is(want, syscall.EPROTO) {
			t.Errorf("too short: %v", want)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := attach(fd, 2*page); !errors.Is(err, syscall.EPROTO) {
		t.Errorf("sealed and too short: %v", err)
	}
	if _, err := attach(fd, page); err != nil {
		t.Errorf("sealed and long enough: %v", err)
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(page); err != nil {
		t.Fatal(err)
	}
	if _, err := attach(int(f.Fd()), page); !errors.Is(err, syscall.EPROTO) {
		t.Errorf("a file: %v", err)
	}
}

// TestBadHandshakes checks that an invalid frame ends the handshake at both ends, and leaves no descriptor open.
func TestBadHandshakes(t *testing.T) {
	var d testDirectory
	b := d.open(t, addrB, 1)
	_, file, err := create(page)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	leaks := leaksTruncated(t, file)
	before := descriptors(t) - 1 // without file
	good := frame{kind: frameHello, port: 1, size: defaultRing, word: magic}
	welcome := frame{kind: frameWelcome, port: 1, word: magic}
	for name, send := range map[string][]any{
		"nothing":                    {},
		"half a frame":               {[]byte{1, 2, 3}},
		"another version":            {frame{kind: frameHello, port: 1, size: defaultRing, word: magic + 1}},
		"no ports":                   {frame{kind: frameHello, size: defaultRing, word: magic}},
		"too many ports":             {frame{kind: frameHello, port: 65, size: defaultRing, word: magic}},
		"a small ring":               {frame{kind: frameHello, port: 1, size: 4096, word: magic}},
		"a ring of an odd size":      {frame{kind: frameHello, port: 1, size: defaultRing + 64, word: magic}},
		"a huge ring":                {frame{kind: frameHello, port: 1, size: 1 << 31, word: magic}},
		"a wake-up first":            {frame{kind: frameWake}},
		"rings without memory":       {good, frame{kind: frameRings}},
		"rings with too much memory": {good, frame{kind: frameRings}, file, file},
		"memory that is too short":   {good, frame{kind: frameRings}, file},
		"memory with the greeting":   {good, file},
		"three descriptors at once":  {good, file, file, file},
	} {
		if name == "three descriptors at once" && leaks {
			t.Logf("%s: not run, this system leaks descriptors that do not fit the control message", name)
			continue
		}
		mine, theirs := socketPair()
		b.Accept(theirs)
		talk(t, mine, send)
		mine.Close()
		b.await("end of "+name, func() bool { return descriptors(t) <= before+1 })
		if n := len(*b.in.Load()); n != 0 {
			t.Errorf("%s: %d ring sets", name, n)
		}
	}
	for name, answer := range map[string][]any{
		"nothing":               {},
		"no memory":             {welcome},
		"one piece of memory":   {welcome, file},
		"too many ports":        {frame{kind: frameWelcome, port: 200, word: magic}, file, file},
		"no ports":              {frame{kind: frameWelcome, port: 0, word: magic}, file, file},
		"another version":       {frame{kind: frameWelcome, port: 1, word: 1}, file, file},
		"heads of another size": {frame{kind: frameWelcome, port: 64, word: magic}, file, file},
		"another frame":         {frame{kind: frameReady}},
		"not ready":             {welcome, file, file, frame{kind: frameBye}},
		"too many ranges":       {frame{kind: frameWelcome, port: 1, size: 2, word: magic}, file, file},
		"a range of a port that is not": {
			frame{kind: frameWelcome, port: 1, size: 1, word: magic}, file, file, frame{kind: frameNumbers, port: 1, size: 0,
				word: 5},
		},
		"a range backwards": {
			frame{kind: frameWelcome, port: 1, size: 1, word: magic}, file, file, frame{kind: frameNumbers, size: 6, word: 5},
		},
		"a huge range": {
			frame{kind: frameWelcome, port: 1, size: 1, word: magic}, file, file, frame{kind: frameNumbers, size: 6,
				word: 1 << 40},
		},
	} {
		mine, theirs := socketPair()
		go func() {
			if _, _, err := expect(theirs, frameHello, 0); err != nil {
				t.Error(err)
			}
			talk(t, theirs, answer)
			theirs.CloseWrite()
		}()
		if _, err := dialRings(mine, 2); err == nil {
			t.Errorf("%s: the handshake succeeded", name)
		}
		mine.Close()
		theirs.Close()
		b.await("end of "+name, func() bool { return descriptors(t) <= before+1 })
	}
}

// talk writes frames, with the files that follow each, and raw bytes.
func talk(t *testing.T, c *net.UnixConn, what []any) {
	for i := 0; i < len(what); i++ {
		switch x := what[i].(type) {
		case []byte:
			_, _ = c.Write(x)
		case frame:
			var files []*os.File
			for ; i+1 < len(what); i++ {
				f, ok := what[i+1].(*os.File)
				if !ok {
					break
				}
				files = append(files, f)
			}
			_ = sendFrame(c, x, files...) // the other end may have had enough
		}
	}
}

// leaksTruncated reports whether descriptors that do not fit a control message stay open in the process, without a
// number that it could close: so they do in qemu-user.
func leaksTruncated(t *testing.T, file *os.File) bool {
	t.Helper()
	from, to := socketPair()
	defer from.Close()
	defer to.Close()
	before, fd := descriptors(t), int(file.Fd())
	_, _, err := from.WriteMsgUnix([]byte{0}, unix.UnixRights(fd, fd, fd), nil)
	oob := make([]byte, unix.CmsgSpace(maxFDs*4))
	_, n, _, _, err2 := to.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	closeFDs(rights(oob[:n]))
	return descriptors(t) != before
}

// descriptors returns how many descriptors are open. There may be fewer later: those of garbage of other tests.
func descriptors(t *testing.T) int {
	t.Helper()
	pollerOpen()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// pollerOpen opens the descriptors of Go's network poller, which a process opens when it first uses a connection.
var pollerOpen = sync.OnceFunc(func() {
	a, b := socketPair()
	a.Close()
	b.Close()
})

// rings creates ring sets from a and from c to b, and returns the ring of a.
func rings(t testing.TB) (a, b, c *side, mem []byte, path, other *link.Path) {
	var d testDirectory
	a, b, c = d.open(t, addrA, 1), d.open(t, addrB, 1), d.open(t, addrC, 1)
	path, other = a.ready(addrB, 7), c.ready(addrB, 7)
	l := path.Route.(*route).rings.Load()
	at := l.ringAt(0, 0)
	return a, b, c, l.rings.bytes[at : at+l.ring], path, other
}

func record(mem []byte, at int, n uint32, kind uint8, aux uint32) {
	binary.LittleEndian.PutUint64(mem[at:], uint64(n)|uint64(kind)<<32|uint64(aux)<<40)
}

// TestInvalidRecords checks that an invalid record ends the ring set of its sender, and no other.
func TestInvalidRecords(t *testing.T) {
	for name, spoil := range map[string]func(mem []byte){
		"an unknown kind":           func(mem []byte) { record(mem, 0, 20, 77, 0) },
		"behind the end":            func(mem []byte) { record(mem, 0, 1<<31, 1, 0) },
		"an unknown flow":           func(mem []byte) { record(mem, 0, 20, 1, 5) },
		"a flow that is too far":    func(mem []byte) { record(mem, 0, 20, 1, 1<<20) },
		"a flow of another length":  func(mem []byte) { record(mem, 0, 20, 2, 0) },
		"a pair of an unknown flow": func(mem []byte) { record(mem, 0, 40, uint8(kindPair), 20<<8|5) },
		"a pair that is too short": func(mem []byte) {
			(&flow{src: addrA, dst: addrB}).put(mem[8:])
			record(mem, 0, flowLen, uint8(kindFlow), 0)
			record(mem, 64, 40, uint8(kindPair), 41<<8)
		},
		"a pair of two lines": func(mem []byte) {
			(&flow{src: addrA, dst: addrB}).put(mem[8:])
			record(mem, 0, flowLen, uint8(kindFlow), 0)
			record(mem, 64, 100, uint8(kindPair), 40<<8)
		},
		"a reference that is too short": func(mem []byte) {
			(&flow{src: addrA, dst: addrB}).put(mem[8:])
			record(mem, 0, flowLen, uint8(kindFlow), 0)
			record(mem, 64, refLen+wire.BTHLen-1, uint8(kindRef), 0)
		},
		"a reference of no bytes": func(mem []byte) {
			(&flow{src: addrA, dst: addrB}).put(mem[8:])
			record(mem, 0, flowLen, uint8(kindFlow), 0)
			record(mem, 64, 0, uint8(kindAway), 0)
		},
		"a reference with too many headers": func(mem []byte) {
			(&flow{src: addrA, dst: addrB}).put(mem[8:])
			record(mem, 0, flowLen, uint8(kindFlow), 0)
			binary.LittleEndian.PutUint32(mem[64+8+16:], link.MinRef)
			record(mem, 64, refLen+wire.MaxHeaderLen+1, uint8(kindRef), 0)
		},
		"a flow to nowhere": func(mem []byte) { record(mem, 0, flowLen, 2, 0) },
		"a flow of a high number": func(mem []byte) {
			(&flow{src: addrA, dst: addrB}).put(mem[8:])
			record(mem, 0, flowLen,
				2, maxFlows)
		},
	} {
		a, b, c, mem, path, other := rings(t)
		l := path.Route.(*route).rings.Load()
		l.rings.word(activeAt(0)).Store(1)
		spoil(mem)
		b.await("end of the rings: "+name, func() bool { b.take(); return len(*b.in.Load()) == 1 })
		<-a.lost
		if got := a.Lost(path); got != link.PeerDied {
			t.Errorf("%s: %v", name, got)
		}
		if n := b.p.Counters().ShmBroken; n != 1 {
			t.Errorf("%s: %d broken ring sets", name, n)
		}
		c.put(other, 7, 8, 1)
		c.p.Send(c.tx)
		if got := b.next(); len(got) != 1 {
			t.Errorf("%s: %d packets of another sender", name, len(got))
		}
	}
}

// TestNothingIsReceivedAfterAnInvalidRecord checks that the records behind an invalid one are not read: what they mean
// is as uncertain.
func TestNothingIsReceivedAfterAnInvalidRecord(t *testing.T) {
	_, b, _, mem, path, _ := rings(t)
	(&flow{src: addrA, dst: addrB}).put(mem[8:])
	record(mem, 0, flowLen, uint8(kindFlow), 0)
	for _, at := range []int{64, 192} {
		wire.BTH(mem[at+8:]).Put(wire.RC|wire.SendOnly, 0, 0xFFFF, 7, 0, 0)
		record(mem, at, wire.BTHLen+8, uint8(kindPacket), 0)
	}
	record(mem, 128, 20, 77, 0)
	path.Route.(*route).rings.Load().rings.word(activeAt(0)).Store(1)
	packets := 0
	b.await("end of the rings", func() bool { packets += len(b.take()); return len(*b.in.Load()) == 1 })
	if packets != 1 {
		t.Errorf("%d packets received, must be the one before the invalid record", packets)
	}
	if n := b.p.Counters().ShmBroken; n != 1 {
		t.Errorf("%d broken ring sets", n)
	}
}

// TestInvalidPackets checks that the bit of a port that the sender does not have is ignored, and that malformed
// packets are counted.
func TestInvalidPackets(t *testing.T) {
	a, b, _, _, path, _ := rings(t)
	l := path.Route.(*route).rings.Load()
	l.rings.word(activeAt(0)).Store(^uint64(0))
	a.put(path, 7, 8, 1)
	a.p.Send(a.tx)
	b.next()
	for range 3 {
		pkt := a.tx.Alloc(path, 7, 700) // no such opcode
		clear(pkt)
		pkt[0] = 0xff
		pkt = a.tx.Alloc(path, 7, 20)
		clear(pkt)
		pkt[0] = 0xff
		a.put(path, 7, maxTrain+4, 1) // too long even for a train
		pkt = a.tx.AllocTrain(path, 7, 8192)
		clear(pkt)
		pkt[0] = byte(wire.RC | wire.Ack) // must not be a train
	}
	a.p.Send(a.tx)
	b.await("counted", func() bool { b.take(); return b.p.Counters().RxMalformed == 12 })
	if n := len(*b.in.Load()); n != 2 {
		t.Errorf("%d ring sets", n)
	}
}

// TestInvalidHead checks that an invalid head ends the ring set.
func TestInvalidHead(t *testing.T) {
	a, b, _, _, path, _ := rings(t)
	(*b.in.Load())[0].heads.word(0).Store(12345)
	for a.put(path, 7, 4096, 1) {
		a.p.Send(a.tx)
		if a.Lost(path) != link.NotLost {
			break
		}
	}
	<-a.lost
	if got := a.Lost(path); got != link.PeerDied {
		t.Errorf("%v", got)
	}
}

// TestWakeUpsNeverBlock checks that a receiver that does not read its socket cannot stop a sender.
func TestWakeUpsNeverBlock(t *testing.T) {
	a, b, _, _, path, _ := rings(t)
	sleep := b.status.word(sleepAt(0))
	begin := time.Now()
	for i := range 20000 {
		sleep.Store(uint64(2*i + 1)) // asleep again, and again
		a.put(path, 7, 8, 1)
		a.p.Send(a.tx)
		b.take()
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("%v", took)
	}
}

// FuzzRing writes anything into a ring at any time: the receiver returns only packets that Parse accepts.
func FuzzRing(f *testing.F) {
	var seed []byte
	seed = append(seed, make([]byte, 2*64)...)
	(&flow{src: addrA, dst: addrB}).put(seed[8:])
	record(seed, 0, flowLen, uint8(kindFlow), 0)
	record(seed, 64, 20, uint8(kindPacket), 0)
	wire.BTH(seed[72:]).Put(wire.RC|wire.SendOnly, 0, 0xFFFF, 7, 1, 0)
	f.Add(seed, uint64(1))
	f.Add([]byte{0xff, 0xff, 0, 0, 1}, uint64(2))
	ref := append(seed[:64:64], make([]byte, 64)...)
	record(ref, 64, refLen+wire.BTHLen, uint8(kindRef), 0)
	binary.LittleEndian.PutUint64(ref[72:], 1)
	binary.LittleEndian.PutUint64(ref[80:], 4096)
	binary.LittleEndian.PutUint32(ref[88:], link.MinRef)
	wire.BTH(ref[96:]).Put(wire.RC|wire.WriteMiddle, 0, 0xFFFF, 7, 1, 0)
	f.Add(ref, uint64(3))
	away := bytes.Clone(ref)
	record(away, 64, refLen+wire.BTHLen, uint8(kindAway), 0)
	f.Add(away, uint64(4))
	two := bytes.Clone(seed)
	record(two, 64, 24, uint8(kindCountedPair), 12<<8)
	f.Add(two, uint64(5))
	told := bytes.Clone(seed)
	record(told, 64, countsLen, uint8(kindCounts), 0)
	binary.LittleEndian.PutUint64(told[80:], 1)
	binary.LittleEndian.PutUint64(told[88:], 0xFF)
	f.Add(told, uint64(6))
	share := &memory{bytes: aligned(64 << 10)}
	f.Fuzz(func(t *testing.T, content []byte, random uint64) {
		l := &rxRings{shape: shape{n: 1, m: 1, ring: minRing}}
		l.rings = &memory{bytes: aligned(l.ringsSize())}
		l.heads = &memory{bytes: aligned(l.headsSize())}
		l.prepare()
		l.shares.Store(&map[uint64]*memory{1: share})
		from := &senderMemory{pid: os.Getpid(), failed: func() {}}
		from.readable.Store(true)
		l.sender.Store(from)
		l.once.Do(func() {}) // there is no connection to close
		l.rings.word(activeAt(0)).Store(^uint64(0))
		mem := l.rings.bytes[l.ringAt(0, 0):]
		copy(mem, content)
		s := &Link{}
		s.in.Store(&[]*rxRings{l})
		s.status = &memory{bytes: aligned(page)}
		p := newPort(s, 0, newFakeLink(1).ports[0])
		back := &txRing{counted: counted{acks: new([maxCounted]link.Ack), placed: 10}}
		back.rings = &txRings{shape: shape{n: 1, m: 1}, tx: [][]*txRing{{back}}} // with the id 0
		p.counting = []counting{{rings: back.rings}}
		rnd := rand.New(rand.NewPCG(random, 1))
		var b link.RxBatch
		for range 64 {
			p.Recv(&b)
			for i := range b.Packets {
				pkt := &b.Packets[i]
				mem[rnd.IntN(len(mem))] ^= byte(rnd.Uint32()) // after the checks
				if _, _, err := wire.ParseHead(bytes.Clone(pkt.Data), pkt.Len(), link.MaxRef); err != nil {
					t.Fatalf("%v: % x", err, pkt.Data)
				}
				if pkt.Away != nil {
					if pkt.Append(nil); !pkt.Away.Failed() {
						t.Fatal("read without the proof")
					}
					from.readable.Store(true)
				}
				if pkt.Counter != nil && rnd.IntN(2) == 0 && pkt.Counter.Count(&link.Path{Route: new(route)}, 5) {
					t.Fatal("counted without a ring")
				}
				if n := len(pkt.Payload()); n > link.MaxRef || n > wire.MaxPayload && !pkt.Train {
					t.Fatalf("%d bytes", n)
				}
			}
			if c := &back.counted; c.done > c.placed || len(b.Acks) > maxCounted {
				t.Fatalf("%d of %d requests, %d acknowledgements", c.done, c.placed, len(b.Acks))
			}
			p.waiting()
		}
	})
}

// aligned returns memory at the beginning of a page.
func aligned(n int) []byte {
	b := make([]byte, n+page)
	off := int(-uintptr(unsafe.Pointer(&b[0])) & (page - 1))
	return b[off : off+n]
}

// TestWakeUpWhileTheSocketIsFull checks that a wake-up that found no room in the socket is not lost, whatever the
// socket was full of.
func TestWakeUpWhileTheSocketIsFull(t *testing.T) {
	for name, filler := range map[string]frame{
		"ends of shares":           {kind: frameUnshare, word: 1},
		"wake-ups of another port": {kind: frameWake, port: 0},
	} {
		l, peer := sender(t)
		full := false
		_ = l.raw.Control(func(fd uintptr) {
			for b := filler.bytes(); !full; {
				_, err := unix.SendmsgN(int(fd), b[:], nil, nil, unix.MSG_DONTWAIT)
				full = err != nil
			}
		})
		lost := frame{kind: frameWake, port: 1}.bytes()
		l.write(lost[:])
		rx := &rxRings{shape: shape{n: 1, m: 2}, conn: peer}
		rx.shares.Store(new(map[uint64]*memory))
		l.conn.Close() // watch reads what is there, and returns
		woken := map[int]bool{}
		rx.watch(func(port int) { woken[port] = true })
		if !woken[1] || len(woken) > 2 {
			t.Errorf("a socket full of %s: woken ports %v", name, woken)
		}
	}
}

// TestWakeUpOfNoPort checks that a wake-up for a port that the link does not have is ignored.
func TestWakeUpOfNoPort(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := a.ready(addrB, 7)
	l := path.Route.(*route).rings.Load()
	for _, port := range []uint8{1, 63, 64, 255, 0} {
		if err := sendFrame(l.conn, frame{kind: frameWake, port: port}); err != nil {
			t.Fatal(err)
		}
	}
	// The frames are read in order: the last one, for the port that the link has, ends the wait.
	const limit = 20 * time.Second
	begin := time.Now()
	if b.p.Wait(limit); time.Since(begin) >= limit {
		t.Error("the frames after a wake-up of no port are not read")
	}
	a.put(path, 7, 8, 1)
	a.p.Send(a.tx)
	if got := b.next(); len(got) != 1 {
		t.Errorf("%d packets", len(got))
	}
	if c := b.p.Counters(); c.ShmBroken != 0 {
		t.Errorf("%d ring sets are broken", c.ShmBroken)
	}
}

// TestMemoryOfNoSize checks that memory that cannot be made is an error, and leaves no descriptor open.
func TestMemoryOfNoSize(t *testing.T) {
	before := descriptors(t)
	for range 3 {
		if _, _, err := create(-page); !errors.Is(err, syscall.EINVAL) {
			t.Fatalf("memory of a negative size: %v", err)
		}
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}
