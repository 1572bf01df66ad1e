package kmad

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// The folders of the kernel's descriptions and of its files.
var (
	sysfs = "/sys/class/infiniband_mad"
	files = "/dev/infiniband"
)

// Port is an open port of a device. All methods are safe for concurrent use, but Next is for one goroutine.
type Port struct {
	f    *os.File
	conn syscall.RawConn
	buf  [headerLen + Size]byte // of Next
}

// Open opens a port of a device. ENOENT without the module ib_umad or the file, EACCES or EPERM without the right,
// ENXIO if the device is removed, EPROTO for another version of the interface.
func Open(device string, port uint8) (*Port, error) {
	name, err := find(device, port)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(files, name)
	fd, err := syscall.Open(file, syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, syscall.ENOENT):
		return nil, fmt.Errorf("%s: %w: give the container the devices of /dev/infiniband", file, err)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return nil, fmt.Errorf("%s: %w: the file is root's: run the program as root, or change its group by a rule of udev",
			file, err)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	f := os.NewFile(uintptr(fd), file)
	conn, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &Port{f: f, conn: conn}, nil
}

// find finds the name of the file of a port.
func find(device string, port uint8) (string, error) {
	version, err := attribute("abi_version")
	if err != nil {
		return "", fmt.Errorf("%s: %w: load the module ib_umad (modprobe ib_umad)", sysfs, syscall.ENOENT)
	}
	if version != strconv.Itoa(abiVersion) {
		return "", fmt.Errorf("%s: version %q of the interface: must be %d: %w", sysfs, version, abiVersion, syscall.EPROTO)
	}
	list, _ := filepath.Glob(filepath.Join(sysfs, "umad*"))
	for _, dir := range list {
		name := filepath.Base(dir)
		of, err := attribute(name, "ibdev")
		number, e := attribute(name, "port")
		if err == nil && e == nil && of == device && number == strconv.Itoa(int(port)) {
			return name, nil
		}
	}
	return "", fmt.Errorf("%s: no file for port %d of %s: %w: the device must be of RoCE, and in the network namespace "+
		"of the process", sysfs, port, device, syscall.ENOENT)
}

// attribute reads a file of sysfs.
func attribute(names ...string) (string, error) {
	b, err := os.ReadFile(filepath.Join(append([]string{sysfs}, names...)...))
	return strings.TrimSpace(string(b)), err
}

// Close ends Next and all agents.
func (p *Port) Close() error { return p.f.Close() }

// Register makes an agent and returns its number. EINVAL if the kernel or another program has an agent for one of the
// requests, ENOMEM for more than 32 agents.
func (p *Port) Register(r Request) (uint32, error) {
	b := make([]byte, requestLen)
	r.put(b)
	err := p.ioctl(cmdRegister, b)
	return ne.Uint32(b), err
}

// Unregister ends an agent. Requests of it that wait for an answer are forgotten.
func (p *Port) Unregister(agent uint32) error {
	return p.ioctl(cmdUnregister, ne.AppendUint32(nil, agent))
}

func (p *Port) ioctl(cmd uintptr, b []byte) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&b[0])
	var errno syscall.Errno
	err := p.conn.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, cmd, uintptr(unsafe.Pointer(&b[0])))
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return err
}

// Send sends a datagram of Size bytes. It may wait a second for the link address of the peer. EINVAL if a request with
// the same transaction ID waits for its answer, EIO if the device is removed.
func (p *Port) Send(h *Header, mad []byte) error {
	b := make([]byte, headerLen+Size)
	h.put(b)
	copy(b[headerLen:], mad)
	var err error
	e := p.conn.Control(func(fd uintptr) {
		for {
			if _, err = syscall.Write(int(fd), b); !errors.Is(err, syscall.EINTR) {
				return
			}
		}
	})
	if e != nil {
		return e
	}
	return err
}

// Next waits for a datagram and copies it to mad, which has Size bytes. n is its length. It fails when the port is
// closed, and with EIO when the device is removed.
func (p *Port) Next(h *Header, mad []byte) (n int, err error) {
	e := p.conn.Read(func(fd uintptr) bool {
		n, err = syscall.Read(int(fd), p.buf[:])
		return !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR)
	})
	if e != nil {
		return 0, e
	}
	if err != nil {
		return 0, err
	}
	if n < headerLen {
		return 0, fmt.Errorf("%s: %d bytes: must be at least %d: %w", p.f.Name(), n, headerLen, syscall.EPROTO)
	}
	*h = headerOf(p.buf[:headerLen])
	return copy(mad, p.buf[headerLen:n]), nil
}
