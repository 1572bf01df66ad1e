package peeruser

import (
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// subordinateUsers is the file with the users that others may become in user namespaces of their own (newuidmap). Each
// line is NAME:FIRST:COUNT.
var subordinateUsers = "/etc/subuid"

// A users is a range of users that belong to another one.
type users struct {
	first, count uint64
	of           uint32
}

// subordinates is the contents of subordinateUsers.
type subordinates struct {
	mu sync.Mutex
	// +checklocks:mu
	looked time.Time // when the file was last looked at
	// +checklocks:mu
	changed time.Time // its time
	// +checklocks:mu
	ranges []users
}

var known subordinates

// lookAgain is the time after which a change of the file is noticed.
const lookAgain = time.Second

// Account returns the user whose limits count for a user: the owner of one that is subordinate (subuid(5)), of whom
// each user has 65536 on many systems, else the user itself. Those of root do not count for root, but for the first of
// them. It says nothing about rights.
func Account(uid uint32) uint32 { return known.account(uid, time.Now()) }

func (s *subordinates) account(uid uint32, now time.Time) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.looked) >= lookAgain {
		s.looked = now
		s.look()
	}
	for _, r := range s.ranges {
		if n := uint64(uid) - r.first; uint64(uid) >= r.first && n < r.count {
			return r.of
		}
	}
	return uid
}

// look reads the file if it has changed.
//
// +checklocks:s.mu
func (s *subordinates) look() {
	st, err := os.Stat(subordinateUsers)
	if err != nil {
		s.ranges, s.changed = nil, time.Time{}
		return
	}
	if st.ModTime().Equal(s.changed) {
		return
	}
	b, err := os.ReadFile(subordinateUsers)
	if err != nil {
		return
	}
	s.ranges, s.changed = parseSubordinates(string(b), userID), st.ModTime()
}

// parseSubordinates returns the ranges of a file. A range whose owner is unknown counts for its first user.
func parseSubordinates(text string, id func(name string) (uint32, bool)) (list []users) {
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) != 3 {
			continue
		}
		first, err := strconv.ParseUint(f[1], 10, 32)
		count, e := strconv.ParseUint(f[2], 10, 32)
		if err != nil || e != nil || first == 0 || count == 0 {
			continue
		}
		r := users{first, count, uint32(first)}
		if of, ok := id(f[0]); ok && of != 0 {
			r.of = of
		}
		list = append(list, r)
	}
	return slices.Clip(list)
}

// userID returns the number of a user by name or number.
func userID(name string) (uint32, bool) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(n), true
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(n), err == nil
}
