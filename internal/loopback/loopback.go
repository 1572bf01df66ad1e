// Package loopback gives each test process addresses of its own in 127.0.0.0/8 and TCP ports of its own, so that tests
// of several users, clones or packages can run at the same time on one machine. It imports the standard library only.
package loopback

import (
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
)

const (
	// inherited is the environment variable by which the processes that a test starts have the addresses of the test.
	inherited = "TEST_LOOPBACK_NET"
	// guard is the TCP port whose listener reserves a network.
	guard = 4790

	// Networks 127.4.0.0/24 to 127.4.15.0/24 are for tests with addresses that do not vary.
	firstNet, lastNet = 16, 255
	nets              = lastNet - firstNet + 1

	// Each network has some of the ports 8000 to 31999. The system does not give them to sockets that ask for any port,
	// as those of other tests do all the time: Linux gives these 32768 to 60999.
	firstPort, portsOfNet = 8000, 100
)

// Addr returns address 127.4.N.host, host 1 to 254, as text. N is the same for all calls of this process and of the
// processes that it starts, and no other test process has it: a listener reserves the network until the process ends.
func Addr(host int) string { return fmt.Sprintf("%s%d", network(), host) }

// Port returns a TCP port that no socket has, as text, for a server that the test starts. No other test process gets it
// meanwhile.
func Port() string {
	var n int
	_, _ = fmt.Sscanf(network(), "127.4.%d.", &n)
	first := firstPort + (n+nets-firstNet)%nets*portsOfNet
	for range portsOfNet {
		port := fmt.Sprint(first + int(ports.Add(1))%portsOfNet)
		l, err := net.Listen("tcp", ":"+port)
		if err == nil {
			_ = l.Close()
			return port
		}
	}
	panic("loopback: no port is free")
}

var (
	network = sync.OnceValue(choose)
	ports   atomic.Uint32 // that Port has tried
	held    net.Listener  // for the lifetime of the process
)

// choose reserves a network and returns the first three bytes of its addresses, with a dot behind each.
func choose() string {
	if given := os.Getenv(inherited); given != "" {
		return given
	}
	for i := range nets {
		prefix := fmt.Sprintf("127.4.%d.", firstNet+(os.Getpid()+i)%nets)
		l, err := net.Listen("tcp4", fmt.Sprintf("%s255:%d", prefix, guard))
		if err != nil {
			continue
		}
		held = l
		if err := os.Setenv(inherited, prefix); err != nil {
			panic(err)
		}
		return prefix
	}
	return "127.4.0." // a system whose loopback interface does not have all of 127.0.0.0/8
}
