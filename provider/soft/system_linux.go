package soft

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
)

// populatePages brings the pages of b into memory, for writing if write is set.
func populatePages(b []byte, write bool) error {
	advice := uintptr(unix.MADV_POPULATE_READ)
	if write {
		advice = unix.MADV_POPULATE_WRITE
	}
	page := uintptr(os.Getpagesize())
	first := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	from, to := first&^(page-1), (first+uintptr(len(b))+page-1)&^(page-1)
	_, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, advice)
	runtime.KeepAlive(b)
	switch errno {
	case unix.EFAULT, unix.ENOMEM, unix.EHWPOISON:
		return errno
	}
	return nil // kernels before 5.14 do not have the advice
}

// linkSpeed returns the speed of a network interface in Mb/s, 0 if it has none.
func linkSpeed(iface string) int {
	b, err := os.ReadFile("/sys/class/net/" + iface + "/speed")
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return max(n, 0)
}

// watchInterfaces calls changed after each change of a network interface or an address, until stop returns. The
// contents of the kernel's messages are not used; changed reads the state.
func watchInterfaces(changed func()) (stop func()) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return pollInterfaces(changed)
	}
	fd = fdset.Own(fd)
	groups := uint32(unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		unix.Close(fd)
		return pollInterfaces(changed)
	}
	f := os.NewFile(uintptr(fd), "netlink")
	var done sync.WaitGroup
	done.Go(func() {
		buf := make([]byte, 1<<16)
		for {
			_, err := f.Read(buf)
			if err != nil && !errors.Is(err, unix.ENOBUFS) { // ENOBUFS: messages were lost
				return
			}
			changed()
		}
	})
	return func() {
		_ = f.Close() // ends the Read
		done.Wait()
	}
}
