package cmtest

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/loopback"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
)

// both runs a server and a client, which must succeed.
func both(t *testing.T, server, client string) (serverOut, clientOut string) {
	t.Helper()
	serverOut, clientOut, statuses := ends(t, server, client)
	if statuses != [2]int{} {
		t.Errorf("%s: status %d\n%s\n%s: status %d\n%s", server, statuses[0], serverOut, client, statuses[1], clientOut)
	}
	return serverOut, clientOut
}

// ends runs a server and a client, each on its own host, in virtual time. The hooks run 30 s after the
// start.
func ends(t *testing.T, server, client string, hooks ...func(f *rdmatest.Fabric)) (serverOut, clientOut string,
	statuses [2]int) {
	synctest.Test(t, func(t *testing.T) {
		f := rdmatest.New(rdmatest.Config{RealTime: true})
		side := func(name, args string) (out *bytes.Buffer, done chan int) {
			out, done = &bytes.Buffer{}, make(chan int, 1)
			dev, err := f.NewDevice(name)
			if err != nil {
				t.Fatal(err)
			}
			h := rdmacm.NewHost(dev)
			go func() {
				status := start(t.Context(), h, out, strings.Fields(args))
				if err := h.Close(); err != nil {
					t.Errorf("%s: %v", args, err)
				}
				done <- status
			}()
			return out, done
		}
		sOut, sDone := side("server", server)
		time.Sleep(time.Second)
		cOut, cDone := side("client", client)
		if len(hooks) > 0 {
			time.Sleep(30 * time.Second)
			hooks[0](f)
		}
		statuses[1] = <-cDone
		statuses[0] = <-sDone
		serverOut, clientOut = sOut.String(), cOut.String()
	})
	return serverOut, clientOut, statuses
}

// start runs a program on a host.
func start(ctx context.Context, h *rdmacm.Host, out *bytes.Buffer, args []string) int {
	env := &tool.Env{Argv0: args[0], Stdout: out, Stderr: out}
	switch name, args := args[0], args[1:]; name {
	case "ucmatose":
		c := &cmatose{}
		if status, ok := c.parse(env, args); !ok {
			return status
		}
		c.ctx, c.host = ctx, h
		return c.start()
	case "udaddy":
		u := &udaddy{}
		if status, ok := u.parse(env, args); !ok {
			return status
		}
		u.ctx, u.host = ctx, h
		return u.start()
	case "mckey":
		m := &mckey{}
		if status, ok := m.parse(env, args); !ok {
			return status
		}
		m.ctx, m.host = ctx, h
		return m.run(m.play)
	case "cmtime":
		c := &cmtime{env: env, host: h}
		if status, ok := c.parse(args); !ok {
			return status
		}
		return c.start(ctx)
	case "rdma_xclient", "rdma_xserver":
		x := &xsimple{simple: simple{name: name, env: env, host: h}}
		if status, ok := x.parse(args); !ok {
			return status
		}
		return x.start(ctx)
	default:
		s := &simple{name: name, env: env, host: h}
		if status, ok := s.parse(args); !ok {
			return status
		}
		return s.start(ctx)
	}
}

func TestPairs(t *testing.T) {
	const addr = "198.18.0.1"
	for _, c := range []struct{ server, client, saysServer, saysClient string }{
		{"ucmatose", "ucmatose -s " + addr,
			"cmatose: starting server|initiating data transfers|completing sends|receiving data transfers|" +
				"data transfers complete|cmatose: disconnecting|disconnected|test complete|return status 0",
			"cmatose: starting client|cmatose: connecting|receiving data transfers|sending replies|" +
				"data transfers complete|test complete|return status 0"},
		{"ucmatose -c 20 -C 5 -S 5000 -b " + addr, "ucmatose -c 20 -C 5 -S 5000 -t 8 -a 12 -f ip -s " + addr, "", ""},
		{"ucmatose -m -P ib -p 1234", "ucmatose -m -P ib -p 1234 -s " + addr, "", ""},
		{"ucmatose -C 0", "ucmatose -S 0 -s " + addr, "", ""},
		{"udaddy", "udaddy -s " + addr,
			"udaddy: starting server|receiving data transfers|sending replies|data transfers complete|test complete|" +
				"return status 0",
			"udaddy: starting client|udaddy: connecting|initiating data transfers|receiving data transfers|" +
				"data transfers complete|test complete|return status 0"},
		{"udaddy -c 7 -S 2000", "udaddy -c 7 -S 2000 -s " + addr, "", ""},
		{"udaddy -P ipoib", "udaddy -p 2 -s " + addr, "", ""},
		{"mckey -m 239.1.2.3 -b " + addr, "mckey -s -m 239.1.2.3 -b 198.18.0.2",
			"mckey: starting server|mckey: joining|mckey: joined dgid: ::ffff:239.1.2.3 mlid 0x0 sl 0|" +
				"receiving data transfers|data transfers complete|test complete|return status 0",
			"mckey: starting client|mckey: joining|mckey: joined dgid: ::ffff:239.1.2.3 mlid 0x0 sl 0|" +
				"initiating data transfers|data transfers complete|test complete|return status 0"},
		{"mckey -M ::ffff:239.1.2.3 -b " + addr, "mckey -s -o -M ::ffff:239.1.2.3 -b 198.18.0.2", "", ""},
		{"rdma_server", "rdma_client -s " + addr, "rdma_server: start|rdma_server: end 0",
			"rdma_client: start|rdma_client: end 0"},
		{"rdma_xserver", "rdma_xclient -s " + addr, "rdma_xserver: start|rdma_xserver: end 0",
			"rdma_xclient: start|rdma_xclient: end 0"},
		{"rdma_xserver -c x -p 8888", "rdma_xclient -c XRC -p 8888 -s " + addr, "rdma_xserver: start|rdma_xserver: end 0",
			"rdma_xclient: start|rdma_xclient: end 0"},
		{"rdma_server -s " + addr + " -p 999", "rdma_client -p 999 -s " + addr, "", ""},
	} {
		t.Run(fmt.Sprint(c.server, " and ", c.client), func(t *testing.T) {
			if strings.HasSuffix(c.server, "-p 999") {
				c.server, c.client = strings.Replace(c.server, "999", "9999", 1), strings.Replace(c.client, "999", "9999", 1)
			}
			s, cl := both(t, c.server, c.client)
			for _, x := range [][2]string{{c.saysServer, s}, {c.saysClient, cl}} {
				if want := strings.ReplaceAll(x[0], "|", "\n") + "\n"; x[0] != "" && x[1] != want {
					t.Errorf("got\n%swant\n%s", x[1], want)
				}
			}
		})
	}
}

// A program that expects more messages than the other end sends fails; the C programs poll for ever.
func TestPeerSendsFewerMessages(t *testing.T) {
	const addr = "198.18.0.1"
	for _, c := range []struct{ server, client, says string }{
		{"ucmatose -C 0", "ucmatose -C 5 -s " + addr,
			"cmatose: the peer has disconnected after 0 of 5 messages: do both ends have the same -C?"},
		{"ucmatose -C 3", "ucmatose -C 4 -s " + addr,
			"cmatose: no message for 1m0s, after 3 of 4: do both ends have the same -C?"},
		{"udaddy -C 3", "udaddy -C 4 -s " + addr,
			"udaddy: no message for 1m0s, after 3 of 4: do both ends have the same -C, or was one lost?"},
	} {
		t.Run(c.server+" and "+c.client, func(t *testing.T) {
			_, out, statuses := ends(t, c.server, c.client)
			if statuses[1] != 1 || !strings.Contains(out, c.says) {
				t.Errorf("status %d\n%s\nwant %s", statuses[1], out, c.says)
			}
		})
	}
}

// A peer that is cut off cannot disconnect, so a program that has failed does not wait for its
// disconnection.
func TestPeerUnreachable(t *testing.T) {
	cut := func(f *rdmatest.Fabric) { f.Cut(netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("198.18.0.2")) }
	sOut, cOut, statuses := ends(t, "ucmatose -C 3", "ucmatose -C 4 -s 198.18.0.1", cut)
	if statuses != [2]int{1, 1} || !strings.Contains(cOut, "no message for") || !strings.Contains(sOut, "no message for") {
		t.Errorf("status %d\n%s\n%s", statuses, sOut, cOut)
	}
}

// Ctrl-C ends mckey, even during the pause for the network to learn of the member.
func TestMckeyInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := rdmatest.New(rdmatest.Config{RealTime: true})
		dev, err := f.NewDevice("a")
		if err != nil {
			t.Fatal(err)
		}
		h := rdmacm.NewHost(dev)
		ctx, interrupt := context.WithTimeout(t.Context(), time.Second)
		defer interrupt()
		begun := time.Now()
		var out bytes.Buffer
		if status := start(ctx, h, &out, strings.Fields("mckey -s -m 239.1.2.3 -b 198.18.0.1")); status != 1 ||
			time.Since(begun) > 2*time.Second {
			t.Errorf("status %d after %v\n%s", status, time.Since(begun), &out)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The event's number is that of the C programs. The reason follows in words.
func TestNoServer(t *testing.T) {
	for args, want := range map[string]string{
		"ucmatose -s 198.18.0.1":       "cmatose: event: RDMA_CM_EVENT_REJECTED, error: 8\n",
		"udaddy -s 198.18.0.1":         "udaddy: event: RDMA_CM_EVENT_UNREACHABLE, error: 1\n",
		"cmtime -c 3 -s 198.18.0.1":    "event: RDMA_CM_EVENT_REJECTED, error: 8\n",
		"rdma_client -s 198.18.0.1":    "ECONNREFUSED|connect: the peer refused, reason 8",
		"udaddy -S 5000 -s 198.18.0.1": "udaddy: message_size 5000 is larger than active mtu 4096",
	} {
		synctest.Test(t, func(t *testing.T) {
			f := rdmatest.New(rdmatest.Config{RealTime: true})
			dev, err := f.NewDevice("a")
			if err != nil {
				t.Fatal(err)
			}
			h := rdmacm.NewHost(dev)
			var out bytes.Buffer
			status := start(t.Context(), h, &out, strings.Fields(args))
			found := false
			for w := range strings.SplitSeq(want, "|") {
				found = found || strings.Contains(out.String(), w)
			}
			if status != 1 || !found {
				t.Errorf("%s: status %d\n%s", args, status, &out)
			}
			if strings.Contains(want, "error: 8\n") && strings.Count(out.String(), "nobody listens there") != 1 {
				t.Errorf("%s: no words, or repeated ones: %s", args, &out)
			}
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPortSpaceIsExplained(t *testing.T) {
	for _, args := range []string{"udaddy -p x", "mckey -p 0x10000 -m 239.1.2.3"} {
		var out bytes.Buffer
		want := "must be a port space number: 0x111 for UDP, 0x2 for IPoIB\n"
		if status := start(t.Context(), nil, &out, strings.Fields(args)); status != 1 ||
			!strings.Contains(out.String(), want) {
			t.Errorf("%s: status %d\n%s", args, status, &out)
		}
	}
}

func TestMisuse(t *testing.T) {
	for _, args := range []string{"ucmatose x", "ucmatose -c 0", "ucmatose -t 256", "udaddy -p x", "mckey",
		"mckey -M ff02::1", "rdma_client x", "udaddy -z", "rdma_xclient -c z", "rdma_xserver -s x", "cmtime -c 0",
		"cmtime x", "cmtime -L", "cmtime -C x", "cmtime -C x -b y -B z", "cmtime -C x -b y -s z", "cmtime -C x -b y -P 1",
		"cmtime -C x -b y -n 0", "cmtime -C x -b y -q 1"} {
		var out bytes.Buffer
		if status := start(t.Context(), nil, &out, strings.Fields(args)); status != 1 ||
			!strings.Contains(out.String(), "--help lists the options.") {
			t.Errorf("%s: status %d\n%s", args, status, &out)
		}
	}
}

// The server of cmtime runs until it is interrupted. The client's table has a line for each step.
func TestCMTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := rdmatest.New(rdmatest.Config{RealTime: true})
		var hosts [2]*rdmacm.Host
		for i := range hosts {
			dev, err := f.NewDevice(fmt.Sprint(i))
			if err != nil {
				t.Fatal(err)
			}
			hosts[i] = rdmacm.NewHost(dev)
		}
		ctx, interrupt := context.WithCancel(t.Context())
		served := make(chan int)
		var serverOut, out bytes.Buffer
		go func() { served <- start(ctx, hosts[0], &serverOut, strings.Fields("cmtime -b 198.18.0.1 -p 4711")) }()
		time.Sleep(time.Second)
		if status := start(t.Context(), hosts[1], &out,
			strings.Fields("cmtime -c 30 -p 4711 -b 198.18.0.2 -s 198.18.0.1")); status != 0 {
			t.Errorf("the client's status is %d", status)
		}
		interrupt()
		if status := <-served; status != 0 || serverOut.Len() > 0 {
			t.Errorf("the server's status is %d: %s", status, &serverOut)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		want := []string{"creating id", "binding source address", "resolving address", "resolving route", "creating qp",
			"connecting", "disconnecting",
			"destroying id", "step              total ms     max ms     min us  us / conn", "create id    : ",
			"bind addr    : ", "resolve addr : ",
			"resolve route: ", "create qp    : ", "connect      : ", "disconnect   : ", "destroy      : "}
		for i, w := range want {
			if i >= len(lines) || !strings.HasPrefix(lines[i], w) || i > 8 && len(strings.Fields(lines[i][len(w):])) != 4 {
				t.Fatalf("line %d does not begin with %q:\n%s", i+1, w, &out)
			}
		}
		for _, h := range hosts {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// Two clients and a server of cmtime with a controller go through all steps together. Two instances make a round
// without QPs too, for which the QP numbers are made up.
func TestCMTimeWithController(t *testing.T) {
	for _, test := range []struct {
		name      string
		instances []string
		says      []string // the first instance
	}{
		{"two", []string{"-b 198.18.0.1 -L", "-b 198.18.0.2 -n 3"},
			[]string{"Running as OOB root", "Server warmup", "Accept (5) QPs test", "Accept (5) test - no QPs"}},
		{"three, simulated", []string{"-b 198.18.0.1 -P 3 -m 10", "-b 198.18.0.2 -P 3 -m 10 -L", "-b 198.18.0.3 -P 3 -m 10"},
			[]string{"Running as OOB root", "Client warmup", "Connect (5) simulated QPs test (delay 10 us)", "cm_conn"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			port := loopback.Port()
			f := rdmatest.New(rdmatest.Config{RealTime: true})
			outs, statuses := make([]bytes.Buffer, len(test.instances)), make([]int, len(test.instances))
			var all sync.WaitGroup
			for i, args := range test.instances {
				dev, err := f.NewDevice(fmt.Sprint(i))
				if err != nil {
					t.Fatal(err)
				}
				all.Go(func() {
					h := rdmacm.NewHost(dev)
					statuses[i] = start(t.Context(), h, &outs[i], strings.Fields("cmtime -c 5 -C 127.0.0.1 -p "+port+" "+args))
					if err := h.Close(); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			text := ""
			for i := range outs {
				if text += outs[i].String(); statuses[i] != 0 {
					t.Errorf("%s: status %d\n%s", test.instances[i], statuses[i], &outs[i])
				}
			}
			for _, want := range test.says {
				if !strings.Contains(text, want) {
					t.Errorf("nobody says %q:\n%s", want, text)
				}
			}
			for _, name := range meshNames {
				if strings.Count(text, "\n"+name+" ") < len(test.instances) {
					t.Errorf("not every instance has step %q:\n%s", name, text)
				}
			}
		})
	}
}

// An instance is described as the C program does it on 64-bit machines.
func TestPeerInfo(t *testing.T) {
	for _, p := range []peerInfo{{}, {netip.MustParseAddrPort("192.0.2.1:4711"), true},
		{netip.MustParseAddrPort("[fe80::1%3]:4711"), true}} {
		b := p.bytes()
		if got, err := parsePeer(b); err != nil || got != p || len(b) != 136 {
			t.Errorf("%+v: %+v, %v", p, got, err)
		}
		if p.listen && (b[2] != 0x12 || b[3] != 0x67) {
			t.Errorf("the port of % x", b[:4])
		}
	}
	if p, err := parsePeer(bytes.Repeat([]byte{7}, peerLen)); err == nil {
		t.Errorf("garbage is %+v", p)
	}
}
