package verbs

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// resetFork sets the state of fork protection back to that of a new process.
func resetFork(t *testing.T) {
	reset := func() {
		fork.mu.Lock()
		defer fork.mu.Unlock()
		fork.enabled, fork.asked = false, sync.Once{}
		fork.registered.Store(false)
	}
	reset()
	t.Cleanup(reset)
	for _, name := range []string{"RDMAV_FORK_SAFE", "IBV_FORK_SAFE"} {
		unset(t, name)
	}
}

// unset removes a variable from the environment for the duration of a test.
func unset(t *testing.T, name string) {
	t.Setenv(name, "") // restores the value after the test
	if err := os.Unsetenv(name); err != nil {
		t.Fatal(err)
	}
}

func TestV_FORK_01_BeforeMemoryIsRegistered(t *testing.T) {
	resetFork(t)
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	_, err := pd.RegMR(nil, 0)
	refused(t, err, EINVAL)
	ok(t, ForkInit()) // no region exists
	resetFork(t)
	mr := must(pd.RegMR(make([]byte, 8), 0))(t)
	ok(t, mr.Close())
	refused(t, ForkInit(), EINVAL, "fork_init", "before the first registration")
	if s := IsForkInitialized(); s != ForkUnneeded {
		t.Error(s)
	}
}

func TestX_FORK_01_SecondCallSucceeds(t *testing.T) {
	resetFork(t)
	ok(t, ForkInit())
	ok(t, ForkInit())
	vctx, _ := openFake(t)
	must(newPD(t, vctx).RegMR(make([]byte, 8), 0))(t)
	ok(t, ForkInit()) // the first call was before the region
	if s := IsForkInitialized(); s != ForkEnabled || s.String() != "ENABLED" {
		t.Error(s)
	}
	values(t, 0, ForkDisabled, ForkEnabled, ForkUnneeded)
}

func TestV_FORK_07_D_15_Environment(t *testing.T) {
	for _, name := range []string{"RDMAV_FORK_SAFE", "IBV_FORK_SAFE", ""} {
		for _, value := range []string{"", "0", "no", "1"} {
			for how, list := range map[string]func(){
				"Devices": func() { _, _ = Devices() },
				"Open":    func() { openFake(t) },
			} {
				resetFork(t)
				if name != "" {
					t.Setenv(name, value)
				}
				want := ForkEnabled
				if name == "" {
					want = ForkUnneeded
				}
				list()
				if s := IsForkInitialized(); s != want {
					t.Errorf("%s=%q: %v after %s", name, value, s, how)
				}
			}
		}
	}
}

// Fork protection does not change a registration.
func TestRegistrationWithForkProtection(t *testing.T) {
	resetFork(t)
	t.Setenv("RDMAV_HUGEPAGES_SAFE", "")
	ok(t, ForkInit())
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	buf := make([]byte, 1<<13)
	for _, n := range []int{1, 4096, 1 << 13} {
		mr := must(pd.RegMR(buf[:n], AccessLocalWrite))(t)
		if mr.Length() != n || mr.Addr() != start(buf) {
			t.Errorf("%d bytes at %#x", mr.Length(), mr.Addr())
		}
		ok(t, mr.Close())
	}
}

func TestV_MSG_04_ForkWarning(t *testing.T) {
	resetFork(t)
	fork.registered.Store(true)
	t.Setenv("IBV_FORK_SAFE", "1")
	var w bytes.Buffer
	forkByEnvironment(&w)
	forkByEnvironment(&w)
	if w.String() != "libibverbs: Warning: fork()-safety requested but init failed\n" {
		t.Errorf("%q", w.String())
	}
}

func TestV_ENV_01_V_MSG_05_V_MSG_08_X_MSG_01_ShowWarnings(t *testing.T) {
	old := kernelDevices
	kernelDevices = t.TempDir()
	t.Cleanup(func() { kernelDevices = old })
	for dir, name := range map[string]string{"uverbs0": "mlx5_0\n", "uverbs1": "vrb_fake0\n", "uverbs2": "rxe0\n",
		"uverbs3": "\n"} {
		ok(t, os.Mkdir(filepath.Join(kernelDevices, dir), 0o755))
		ok(t, os.WriteFile(filepath.Join(kernelDevices, dir, "ibdev"), []byte(name), 0o644))
	}
	ok(t, os.Mkdir(filepath.Join(kernelDevices, "abi_version"), 0o755))
	dev := newFakeDevice()
	devices := []*Device{newDevice(dev)}
	const want = "libibverbs: Warning: no userspace device-specific driver found for mlx5_0\n" +
		"libibverbs: Warning: no userspace device-specific driver found for rxe0\n"
	var w bytes.Buffer
	for _, value := range []string{"", "0", "1"} {
		t.Setenv("IBV_SHOW_WARNINGS", value)
		w.Reset()
		warnUndriven(&w, devices)
		if w.String() != want {
			t.Errorf("%q", w.String())
		}
	}
	unset(t, "IBV_SHOW_WARNINGS")
	w.Reset()
	if warnUndriven(&w, devices); w.Len() != 0 {
		t.Errorf("%q", w.String())
	}
	// Devices writes the warnings and continues.
	t.Setenv("IBV_SHOW_WARNINGS", "")
	withProviders(t, &fakeProvider{name: "fake", devices: []DriverDevice{dev}})
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	ok(t, err)
	stderr := os.Stderr
	os.Stderr = file
	list, err := Devices()
	os.Stderr = stderr
	ok(t, err)
	ok(t, file.Close())
	if got, err := os.ReadFile(file.Name()); string(got) != want || err != nil || len(list) != 1 {
		t.Errorf("%q, %v, %v", got, err, list)
	}
}

func TestV_ENV_02_DestroyAfterRemoval(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		if unset(t, "RDMAV_ALLOW_DISASSOC_DESTROY"); allowed {
			t.Setenv("RDMAV_ALLOW_DISASSOC_DESTROY", "0") // the value is irrelevant
		}
		vctx, drv := openFake(t)
		pd := newPD(t, vctx)
		qp, _ := newQP(t, pd, QPTypeRC)
		srq, _ := newSRQ(t, pd)
		attr := goodAH()
		objects := []interface{ Close() error }{
			qp, qp.SendCQ(), srq, must(pd.CreateAH(&attr))(t), must(pd.RegMR(make([]byte, 8), 0))(t),
			must(pd.AllocMW(MWType2))(t),
			must(vctx.AllocDM(AllocDMAttr{Length: 8}))(t), pd,
		}
		calls := []string{"DestroyQP", "DestroyCQ", "DestroySRQ", "DestroyAH", "Dereg", "DeallocMW", "FreeDM", "Dealloc"}
		for i, o := range objects {
			drv.fail[calls[i]] = syscall.EBADF // another error is always returned
			refused(t, o.Close(), syscall.EBADF)
			drv.fail[calls[i]] = syscall.EIO
			err := o.Close()
			if allowed {
				ok(t, err)
				continue
			}
			refused(t, err, syscall.EIO)
			delete(drv.fail, calls[i])
			ok(t, o.Close()) // after the failure the object can be closed
		}
		ok(t, vctx.Close())
	}
}
