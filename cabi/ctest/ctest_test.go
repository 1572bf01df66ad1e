//go:build linux

package ctest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/loopback"
)

// run compiles a program of testdata with the installed headers and runs it on the libraries. It returns the output.
func run(t *testing.T, source string, options ...string) string {
	t.Helper()
	begun := time.Now()
	out, err := prepare(t, source, options...)().CombinedOutput()
	if err != nil {
		t.Fatalf("after %v: %v\n%s", time.Since(begun), err, out)
	}
	return string(out)
}

// prepare compiles a program of testdata with the installed headers. It returns a function that makes commands, which
// run it on the libraries behind the given words.
func prepare(t *testing.T, source string, options ...string) func(before ...string) *exec.Cmd {
	t.Helper()
	lib := os.Getenv("VERBENA_LIB")
	if lib == "" {
		t.Skip("VERBENA_LIB is not set; run make cabi, then VERBENA_LIB=$PWD/bin/cabi go test ./cabi/ctest")
	}
	for header, option := range map[string]string{"infiniband/verbs.h": "", "rdma/rsocket.h": "-lrdmacm",
		"infiniband/umad.h": "-libumad"} {
		if _, err := os.Stat("/usr/include/" + header); err != nil && (option == "" || slices.Contains(options, option)) {
			t.Skipf("%s is not installed: make cabi-test installs it", header)
		}
	}
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("gcc is not installed")
	}
	binary := filepath.Join(t.TempDir(), "program")
	args := append([]string{"-g", "-Wall", "-o", binary, filepath.Join("testdata", source)}, options...)
	if out, err := exec.Command(cc, append(args, "-libverbs", "-lpthread")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return func(before ...string) *exec.Cmd {
		// Long, since machines of CI have few processors and other work.
		words := slices.Concat([]string{"timeout", "120"}, before, []string{binary})
		program := exec.Command(words[0], words[1:]...)
		program.Env = append(os.Environ(), "LD_LIBRARY_PATH="+lib)
		if strings.HasPrefix(source, "sockets") {
			first := os.Getenv("LD_PRELOAD") // of the sanitizer, which must be the first library
			program.Env = append(program.Env, "LD_PRELOAD="+first+" "+filepath.Join(lib, "libverbena-sockets.so"))
		}
		return program
	}
}

// bothPreloads is the setting of LD_PRELOAD for the sockets and the virtual files.
func bothPreloads() string {
	first, lib := os.Getenv("LD_PRELOAD"), os.Getenv("VERBENA_LIB")
	return fmt.Sprintf("LD_PRELOAD=%s %s/libverbena-sysfs.so %s/libverbena-sockets.so", first, lib, lib)
}

func TestVirtualFiles(t *testing.T) {
	tree := t.TempDir()
	folder := filepath.Join(tree, "class/infiniband/probe/ports/1")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "state"), []byte("4: ACTIVE\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := prepare(t, "files.c")("env", "VERBENA_SYSFS="+tree, bothPreloads()).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestBadInputHasTheErrnoOfLibibverbs(t *testing.T) {
	t.Setenv("VERBENA_EXPLAIN", "1")
	run(t, "bad.c")
}

// No call fails and no completion comes if a datagram is dropped: the counter is the reason that can be printed.
func TestDropsAreExplained(t *testing.T) {
	t.Setenv("VERBENA_EXPLAIN", "1")
	t.Setenv("VERBENA_DEVICES", "lone=127.0.0.1")
	out := run(t, "dropped.c")
	for _, want := range []string{"verbena: lone: bad_qkey 1: Datagrams dropped: wrong Q_Key.\n",
		"verbena: lone: recv_dropped 1: "} {
		if strings.Count(out, want) != 1 {
			t.Errorf("must have once %q:\n%s", want, out)
		}
	}
}

// The program must report that it got no QP, not go on with an SRQ that no QP has kept from being destroyed. It gets
// none for want of descriptors; it once was because the process that led at the address did not answer.
func TestBadInputReportsWhatItCouldNotMake(t *testing.T) {
	for _, limit := range []string{"16", "24", "32", "40"} {
		out, err := prepare(t, "bad.c")("sh", "-c", "ulimit -n "+limit+"; exec \"$0\"").CombinedOutput()
		if err == nil {
			continue
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 && exit.ExitCode() != 2 {
			t.Errorf("with %s descriptors: %v\n%s", limit, err, out)
		}
	}
}

func TestForkedChildrenUseDevices(t *testing.T) {
	first := strings.Fields(run(t, "fork.c"))
	slices.Sort(first)
	if len(first) != 4 || len(slices.Compact(slices.Clone(first))) == 1 {
		t.Errorf("the first QPs of 4 children: %v: must not be all the same", first)
	}
}

// The variable has a relative path, as in the shell of someone who tries the libraries out.
func TestProgramsChangeTheirFolder(t *testing.T) {
	command := prepare(t, "chdir.c")
	lib := os.Getenv("VERBENA_LIB")
	for _, path := range []string{"./" + filepath.Base(lib), filepath.Base(lib), "."} {
		program := command("env", "LD_LIBRARY_PATH="+path)
		if program.Dir = filepath.Dir(lib); path == "." {
			program.Dir = lib
		}
		if out, err := program.CombinedOutput(); err != nil {
			t.Errorf("LD_LIBRARY_PATH=%s: %v\n%s", path, err, out)
		}
	}
}

func TestAThreadOfAForkedChildEnds(t *testing.T) { run(t, "forkexit.c") }

func TestForkWhileAThreadOpensSockets(t *testing.T) {
	t.Setenv("VERBENA_DEVICES", "lone="+loopback.Addr(4))
	run(t, "forksockets.c")
}

func TestTheEngineHasNoneOfTheFirstDescriptors(t *testing.T) {
	t.Setenv("VERBENA_DEVICES", "lone="+loopback.Addr(5))
	run(t, "low.c")
}

func TestForkWhileAThreadLoadsTheEngine(t *testing.T) { run(t, "forkload.c") }

func TestImportsAndRegionsByAttributes(t *testing.T) { run(t, "import.c") }

func TestProgramsUseMemoryThatPeersRead(t *testing.T) {
	t.Run("by reference", func(t *testing.T) {
		t.Setenv("VERBENA_SHM_DIRECT", "1") // also if this machine reads slowly
		run(t, "memory.c")
	})
	t.Run("copied", func(t *testing.T) {
		t.Setenv("VERBENA_SHM_DIRECT", "0")
		run(t, "memory.c")
	})
}

// The variable makes the garbage collector run all the time.
func TestPointersThatTheProgramHasNotSet(t *testing.T) {
	t.Setenv("GOGC", "1")
	run(t, "pointers.c")
}

func TestThreadsShareQueues(t *testing.T) { run(t, "threads.c") }

// A program may exit as soon as it has polled its last message.
func TestTheLastMessageIsAcknowledged(t *testing.T) {
	t.Setenv("VERBENA_SHM", "0")
	run(t, "lastack.c")
}

func TestSegmentsOfDatagrams(t *testing.T) { run(t, "segments.c") }

func TestStateOfAQPThatTheProgramSees(t *testing.T) { run(t, "state.c") }

func TestACompletionBeforeTheRequestRaisesAnEvent(t *testing.T) { run(t, "missed.c") }

func TestAnExtendedCQWhileACompletionIsRead(t *testing.T) { run(t, "extended.c") }

func TestTheAddressSpaceIsLimited(t *testing.T) { run(t, "room.c") }

func TestRatesAreThoseOfTheHeader(t *testing.T) { run(t, "rates.c") }

func TestSendQueuesAreRoundedUp(t *testing.T) { run(t, "depth.c") }

// The bound is far above the time that it takes and far below that of the retries.
func TestPeersHearOfAParentThatIsKilled(t *testing.T) {
	took, err := time.ParseDuration(strings.TrimSpace(run(t, "forkdeath.c")) + "ms")
	if err != nil || took > 5*time.Second {
		t.Errorf("the peer heard of it after %v (%v)", took, err)
	}
}

// The program is linked with our library first: the installed one may lack some of its functions.
func TestConnections(t *testing.T) {
	ours := filepath.Join(os.Getenv("VERBENA_LIB"), "librdmacm.so.1")
	run(t, "cm.c", "-Wl,--allow-shlib-undefined", ours, "-lrdmacm")
}

func TestTermsOfConnectionCalls(t *testing.T) { run(t, "cm_terms.c", "-lrdmacm") }

// C-PARM-04, C-PARM-05, C-PARM-06, C-PARM-08, C-PARM-09, C-ACC-10, C-REJ-06, C-SRQ-08, C-MC-11, C-EVT-14, C-SYNC-03
func TestLimitsAndErrnoOfConnections(t *testing.T) { run(t, "cmlimits.c", "-lrdmacm", "-libumad") }

// R-SOCK-03, R-NAME-01, R-OPT-02, R-OPT-03, R-OPT-06, R-IO-11, R-IO-12, R-IO-17, R-MAP-13, R-POLL-10
func TestLimitsAndErrnoOfRsockets(t *testing.T) { run(t, "rsockets.c", "-lrdmacm") }

func TestDisconnectMovesTheQPFirst(t *testing.T) { run(t, "disconnect.c", "-lrdmacm") }

// The first call of each run loads the engine, or opens the device.
func TestCallsThatSucceedLeaveErrno(t *testing.T) {
	t.Setenv("VERBENA_DEVICES", "vrb_lo=127.0.9.3") // as in the program
	program := prepare(t, "errno.c", "-lrdmacm")
	for _, first := range []string{"verbs", "connections", "lists", "sockets"} {
		command := program()
		command.Args = append(command.Args, first)
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", first, err, out)
		}
	}
	run(t, "sockets_errno.c")
}

func TestThreadsWaitForADestroyedChannel(t *testing.T) {
	ours := filepath.Join(os.Getenv("VERBENA_LIB"), "librdmacm.so.1")
	if out := run(t, "channel.c", "-Wl,--allow-shlib-undefined", ours, "-lrdmacm"); strings.HasPrefix(out, "SKIP") {
		t.Skip(out)
	}
}

func TestSocketsOfAProgramAreRsockets(t *testing.T) {
	out := run(t, "sockets.c") // R-PRE-01, R-PRE-05
	// Three of its children use sockets of their parent, each several times.
	if n := strings.Count(out, "cannot use a connection of the process that forked it (EIO)"); n != 3 {
		t.Errorf("%d lines say why a child gets EIO: must be 3\n%s", n, out)
	}
}

// waits runs a case of sockets_waits.c.
func waits(t *testing.T, name string, before ...string) {
	t.Helper()
	program := prepare(t, "sockets_waits.c", "-rdynamic", "-ldl")(before...)
	program.Args = append(program.Args, name)
	if out, err := program.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestPendingSignalsEndWaitsThatUnblockThem(t *testing.T) { waits(t, "masks") }
func TestAcceptEndsWithoutTheConnection(t *testing.T)        { waits(t, "stolen") }
func TestCancellationsEndWaits(t *testing.T)                 { waits(t, "cancellations") }
func TestEpollHasDuplicatesOfASocket(t *testing.T)           { waits(t, "duplicates") }
func TestCloseRangeClosesInstancesOfEpoll(t *testing.T)      { waits(t, "range") }
func TestConnectWaitsAsInTheKernel(t *testing.T)             { waits(t, "connects") }
func TestRecvmmsgWaitsForEachMessage(t *testing.T)           { waits(t, "list") }
func TestSelectTellsTheTimeThatIsLeft(t *testing.T)          { waits(t, "remaining") }
func TestAFailedDup2ClosesNothing(t *testing.T)              { waits(t, "replaced") }
func TestEpollTellsOfOrdinaryDescriptorsToo(t *testing.T)    { waits(t, "turns") }
func TestEpollTellsEdgesToOtherThreads(t *testing.T)         { waits(t, "edges") }
func TestThreadsThatShareAnInstanceLearnOfChanges(t *testing.T) {
	waits(t, "team")
	waits(t, "early")
}

// The library of the virtual files has functions of signals too.
func TestHandlersRestartCalls(t *testing.T) {
	waits(t, "restarts")
	waits(t, "restarts", "env", bothPreloads())
	waits(t, "old")
	waits(t, "old", "env", bothPreloads())
}

// MSG_WAITALL is for streams, and for all buffers of a message.
func TestSocketsWaitForAllBytesOfStreams(t *testing.T) {
	waits(t, "whole")
	t.Setenv("VERBENA_SOCKETS", "all")
	waits(t, "datagrams")
}

// The program first runs on the kernel's sockets: it expects nothing that these do not do.
func TestSocketsAreLikeTCPAndUDP(t *testing.T) {
	t.Setenv("VERBENA_SOCKETS", "all")
	program := prepare(t, "sockets_tcp.c")
	for _, before := range [][]string{{"env", "LD_PRELOAD="}, nil} {
		for _, after := range [][]string{nil, {"datagrams"}} {
			cmd := program(before...)
			cmd.Args = append(cmd.Args, after...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v %v: %v\n%s", before, after, err, out)
			}
		}
	}
}

// As above. The program has children that SIGPIPE ends.
func TestSocketsBeginAndEndLikeTCP(t *testing.T) {
	t.Setenv("VERBENA_SOCKETS", "all")
	program := prepare(t, "sockets_ends.c")
	for _, before := range [][]string{{"env", "LD_PRELOAD="}, nil, {"env", bothPreloads()}} {
		if out, err := program(before...).CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", before, err, out)
		}
	}
}

// As above. In the fork mode the sockets become rsockets while they are in the instances.
func TestInstancesOfEpollAreLikeThoseOfTheKernel(t *testing.T) {
	program := prepare(t, "sockets_epoll.c")
	for _, before := range [][]string{{"env", "LD_PRELOAD="}, nil, {"env", "RDMAV_FORK_SAFE=1"}} {
		if out, err := program(before...).CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", before, err, out)
		}
	}
}

// In the fork mode it is so before the server has said anything.
func TestConnectedSocketsAreWritable(t *testing.T) {
	t.Setenv("RDMAV_FORK_SAFE", "1")
	program := prepare(t, "sockets_tcp.c")
	for _, before := range [][]string{{"env", "LD_PRELOAD="}, nil} {
		cmd := program(before...)
		cmd.Args = append(cmd.Args, "polls")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", before, err, out)
		}
	}
}

func TestSocketsLeaveLowDescriptorsToTheProgram(t *testing.T) { run(t, "sockets_low.c") }

// Calls on the stack of a coroutine are not much slower than others.
func TestCallsOnTheStackOfACoroutine(t *testing.T) {
	out, err := prepare(t, "sockets_stack.c")("env", bothPreloads()).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// The variable selects the fork mode. librdmacm is for peers that do the handshake by hand.
func forkMode(t *testing.T) (out string) {
	t.Helper()
	t.Setenv("RDMAV_FORK_SAFE", "1")
	ours := filepath.Join(os.Getenv("VERBENA_LIB"), "librdmacm.so.1")
	return run(t, "sockets_fork.c", "-Wl,--allow-shlib-undefined", ours)
}

func TestR_PRE_04_R_PRE_09_ServersFork(t *testing.T) { forkMode(t) }

// Peers that stop in the middle hold nothing up for longer than the variable says.
func TestR_PRE_09_BadPeersLeaveTCP(t *testing.T) {
	t.Setenv("VERBENA_FORK_WAIT", "1")
	t.Setenv("BAD_PEERS", "1")
	t.Setenv("VERBENA_EXPLAIN", "1")
	if out := forkMode(t); strings.Count(out, "the server has said nothing for 1 s") != 1 {
		t.Errorf("must say once why a client has waited:\n%s", out)
	}
}

// An end that cannot make an rsocket tells the other one: none waits for an hour.
func TestR_PRE_09_AnEndThatStaysTCPTells(t *testing.T) {
	t.Setenv("VERBENA_FORK_WAIT", "3600")
	t.Setenv("PLAIN_PEERS", "1")
	forkMode(t)
}

// The program has a network namespace of its own, with permanent neighbours.
func TestResolveFindsTheMACOfAPeer(t *testing.T) {
	if out, err := exec.Command("unshare", "--net", "ip", "link").CombinedOutput(); err != nil {
		t.Skipf("no network namespace: %v\n%s", err, out)
	}
	run(t, "peermac.c")
}

func TestFlowActionsAndRulesOfUDQPs(t *testing.T) {
	if out := run(t, "flow.c"); strings.HasPrefix(out, "SKIP") {
		t.Skip(out)
	}
}

func TestSignalsAreLeftToTheProgram(t *testing.T) { run(t, "signals.c") }

// The engine uses the signal too. A preloaded library has a handler of its own.
func TestProgramsGetSIGURG(t *testing.T) {
	start := prepare(t, "urgent.c")
	for _, before := range [][]string{nil, {"env", bothPreloads()}} {
		for _, after := range [][]string{nil, {"after"}} {
			cmd := start(before...)
			cmd.Args = append(cmd.Args, after...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v %v: %v\n%s", before, after, err, out)
			}
		}
	}
}

func TestProgramsAreNotInterrupted(t *testing.T) { run(t, "quiet.c") }

// The program has an address of its own: a datagram that is not connection management goes to one of the processes of
// an address.
func TestManagementDatagrams(t *testing.T) {
	t.Setenv("VERBENA_DEVICES", "vrb_lo=127.0.9.1") // as in the program
	t.Setenv("VERBENA_PKEYS", "0xffff+0x8001")
	run(t, "mad.c", "-libumad")
}

func TestManagementDatagramsOfPorts(t *testing.T) {
	t.Setenv("VERBENA_DEVICES", "two=127.0.9.3/127.0.9.4") // as in the program
	run(t, "madports.c", "-libumad")
}

// The program has folders for temporary files of its own: other programs use those of the system.
func TestProgramsEndAtAnyPoint(t *testing.T) {
	for _, name := range []string{"TMPDIR", "XDG_RUNTIME_DIR"} {
		t.Setenv(name, t.TempDir())
	}
	before := leftovers(t)
	run(t, "exit.c")
	for _, name := range leftovers(t) {
		if !slices.Contains(before, name) {
			t.Errorf("%s is left", name)
		}
	}
}

// leftovers returns the files of the program's folders, and the engine's in those that have no variable.
func leftovers(t *testing.T) (names []string) {
	t.Helper()
	for _, pattern := range []string{os.Getenv("TMPDIR") + "/*", os.Getenv("XDG_RUNTIME_DIR") + "/*",
		"/dev/shm/*verbena*", "/run/*verbena*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, found...)
	}
	return names
}

// The interface of the program's device is deleted. The variable counts however it is set.
func TestV_ENV_02_DestroyAfterRemoval(t *testing.T) {
	if out, err := exec.Command("unshare", "--net", "ip", "link").CombinedOutput(); err != nil {
		t.Skipf("no network namespace: %v\n%s", err, out)
	}
	run(t, "removal.c")
	t.Setenv("RDMAV_ALLOW_DISASSOC_DESTROY", "0")
	run(t, "removal.c")
}
