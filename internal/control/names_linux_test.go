package control

import (
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A name contains the user, of 32 bits, whether it is that of a program or of a capture.
func TestOwnerOfAName(t *testing.T) {
	for name, want := range map[string]int64{
		Name(0, 1):                             0,
		Name(1000, 7):                          1000,
		nth(Name(1000, 7), 3):                  1000,
		programs + "4294967295/7":              math.MaxUint32,
		announcement(1000, 2):                  1000,
		programs + "4294967296/7":              -1,
		Name(-1, 7):                            -1,
		programs + "x/7":                       -1,
		programs:                               -1,
		strings.TrimPrefix(Name(1000, 7), "@"): -1,
	} {
		if uid, ok := owner(name); ok != (want >= 0) || ok && int64(uint32(uid)) != want {
			t.Errorf("%q: user %d, %v", name, uid, ok)
		}
	}
	if a, b := nth("x", 0), nth("x", 1); a != "x" || b != "x.1" {
		t.Errorf("%q and %q", a, b)
	}
}

// Stream.Process names the process at the other end, here the test itself, as long as there is a connection.
func TestProcessOfAStream(t *testing.T) {
	name := fmt.Sprintf("%sprocess-of-a-stream", programs)
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_ = l.(*net.UnixListener).SetDeadline(time.Now().Add(20 * time.Second))
	c, err := net.Dial("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	s := &Stream{other, other.(*net.UnixConn)}
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.Process(), fmt.Sprintf("%s (%d)", strings.TrimSpace(string(comm)), os.Getpid()); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if uid, err := s.Account(); uid != os.Geteuid() || err != nil {
		t.Errorf("user %d, %v", uid, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if got := s.Process(); got != "" {
		t.Errorf("%q after Close", got)
	}
	if uid, err := s.Account(); err == nil {
		t.Errorf("user %d after Close", uid)
	}
}

// The programs of subordinate users count for their owner.
func TestAccountOfAName(t *testing.T) {
	defer func(was func(uint32) uint32) { accountOf = was }(accountOf)
	accountOf = func(uid uint32) uint32 {
		if uid >= 100000 && uid < 165536 {
			return 1000
		}
		return uid
	}
	for uid, want := range map[int]int{0: 0, 1000: 1000, 100000: 1000, 165535: 1000, 165536: 165536} {
		r := Report{}
		if r.locate(Name(uid, 7), 7); r.UID != uid || r.Account != want {
			t.Errorf("user %d: %d, counts for %d, want %d", uid, r.UID, r.Account, want)
		}
	}
	var b budgets
	if err := b.begin(Name(100000, 1)); err != nil {
		t.Fatal(err)
	}
	b.until[1000] = time.Now().Add(-time.Second)
	if b.begin(Name(100001, 1)) == nil || b.begin(Name(165536, 1)) != nil {
		t.Error("the time of a subordinate user is not that of the owner")
	}
}

// The processes of several users are asked at the same time, so that those of one which do not answer take no time of
// the others.
func TestUsersAreAskedTogether(t *testing.T) {
	names := []string{Name(7, 1), Name(7, 2), Name(8, 1), Name(9, 5)}
	if got := byAccount(names); len(got) != 3 || !slices.Equal(got[7], []int{0, 1}) || !slices.Equal(got[9], []int{3}) {
		t.Errorf("%v", got)
	}
	own := int(accountOf(uint32(os.Geteuid())))
	for account, most := range map[int]int{own: mostAsked, own + 1: mostOfOther} {
		var at, top, n atomic.Int32
		eachOf(make([]int, 2*mostAsked), account, func(int) {
			top.Store(max(top.Load(), at.Add(1)))
			time.Sleep(time.Millisecond)
			at.Add(-1)
			n.Add(1)
		})
		if int(top.Load()) > most || n.Load() != 2*mostAsked {
			t.Errorf("%d of %d were asked, %d at once", n.Load(), 2*mostAsked, top.Load())
		}
	}
}
