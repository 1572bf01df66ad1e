package soft

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// watchInterfaces calls changed after each change of a network interface or an address, until stop has returned. The kernel's
// messages only say when to look; what has changed is seen by looking.
func watchInterfaces(changed func()) (stop func()) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return pollInterfaces(changed)
	}
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
			if err != nil && !errors.Is(err, unix.ENOBUFS) { // ENOBUFS: messages were lost, so look as well
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
