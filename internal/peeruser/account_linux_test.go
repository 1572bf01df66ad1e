package peeruser

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Subordinate users count for their owner. A change of the file is noticed, and lines that are no ranges are ignored.
func TestAccount(t *testing.T) {
	file := filepath.Join(t.TempDir(), "subuid")
	defer func(was string) { subordinateUsers = was }(subordinateUsers)
	subordinateUsers = file
	var s subordinates
	now := time.Now()
	check := func(want map[uint32]uint32) {
		t.Helper()
		now = now.Add(lookAgain)
		for uid, of := range want {
			if got := s.account(uid, now); got != of {
				t.Errorf("user %d counts for %d, want %d", uid, got, of)
			}
		}
	}
	check(map[uint32]uint32{0: 0, 7: 7, 100000: 100000}) // without a file
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Hour)
		if err := os.Chtimes(file, now, now); err != nil {
			t.Fatal(err)
		}
	}
	write("1000:100000:65536\n# x\n\n1001:165536:10\nroot:200000:1\nno-such-user:300000:5\n" +
		"1:0:100000\n1:2:0\n1:x:2\n1:2\n")
	check(map[uint32]uint32{
		0: 0, 2: 2, 1000: 1000, 99999: 99999, 100000: 1000, 165535: 1000, 165536: 1001, 165545: 1001, 165546: 165546,
		200000: 200000, 300000: 300000, 300004: 300000, 300005: 300005, 1<<32 - 1: 1<<32 - 1,
	})
	write("1002:100000:65536\n")
	check(map[uint32]uint32{100001: 1002, 165536: 165536})
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	check(map[uint32]uint32{100001: 100001})
}
