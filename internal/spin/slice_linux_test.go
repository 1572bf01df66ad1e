package spin

import (
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// ShortSlice changes the slice of the thread and nothing else.
func TestShortSlice(t *testing.T) {
	runtime.LockOSThread() // for good
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Skip("sched_getattr:", err)
	}
	ShortSlice()
	now, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if now.Nice != before.Nice || now.Policy != before.Policy || now.Flags != before.Flags {
		t.Errorf("%+v: must be %+v but for the slice", now, before)
	}
	var u unix.Utsname
	var major, minor int
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor)
	if major*100+minor >= 612 && before.Policy == unix.SCHED_NORMAL && now.Runtime != shortSlice {
		t.Errorf("Linux %d.%d: a slice of %d ns: must be %d", major, minor, now.Runtime, shortSlice)
	}
}
