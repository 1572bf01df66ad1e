package soft

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
)

// claimFile takes a name that stands for the XRC domain of a file on a device, and that only one process of this network namespace can
// have, until the closer is closed or the process ends. taken says that another one has it. Without a name, because the system
// has none to give, the closer is nil.
func claimFile(device string, id fileID) (c io.Closer, taken bool) {
	name := fmt.Sprintf("@verbena-xrcd-%s-%x-%x", device, id.dev, id.ino)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, true
	}
	if err != nil {
		return nil, false
	}
	return l, false
}
