package run

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// openFiles is the soft limit of descriptors that programs get, if the hard one allows it. The engine needs 66 for an
// address, before the program's own. More would slow down programs that close all descriptors up to the limit.
const openFiles = 65536

// execute replaces this process by the program. It returns only errors.
func execute(path string, args, environ []string) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err == nil {
		// Go has raised the soft limit of this process; what is set here stays for the program.
		limit.Cur = min(limit.Max, openFiles)
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) // the program gets the limit that there is
	}
	return syscall.Exec(path, args, environ)
}

// privileged returns an error if the program gets rights that its caller lacks: the loader then ignores
// LD_LIBRARY_PATH and LD_PRELOAD.
func privileged(f *os.File, uid int) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	owner, ok := st.Sys().(*syscall.Stat_t)
	if ok && st.Mode()&os.ModeSetuid != 0 && int(owner.Uid) != uid {
		return errors.New("it has the set-user-ID bit")
	}
	if ok && st.Mode()&os.ModeSetgid != 0 && int(owner.Gid) != os.Getgid() {
		return errors.New("it has the set-group-ID bit")
	}
	if n, err := unix.Fgetxattr(int(f.Fd()), "security.capability", nil); err == nil && n > 0 && uid != 0 {
		return errors.New("it has file capabilities")
	}
	return nil
}
