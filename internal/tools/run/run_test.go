package run

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

// fakeLibraries returns a folder with empty files in place of the libraries.
func fakeLibraries(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, n := range names {
		if err := os.WriteFile(filepath.Join(dir, n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// refuses checks that an error says all of want.
func refuses(t *testing.T, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error: must say %q", want)
		return
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q: must say %q", err, w)
		}
	}
}

func TestLibrariesComeFromTheVariable(t *testing.T) {
	dir := fakeLibraries(t, ibverbs, engineLib, sysfsLib, socketsLib)
	l, err := findLibraries(func(string) string { return dir })
	if err != nil || l.dir != dir || l.sysfs != filepath.Join(dir, sysfsLib) ||
		l.sockets != filepath.Join(dir, socketsLib) {
		t.Errorf("%+v, %v", l, err)
	}
	dir = fakeLibraries(t, ibverbs, engineLib)
	if l, err := findLibraries(func(string) string { return dir }); err != nil || l.sysfs != "" || l.sockets != "" {
		t.Errorf("without %s: %+v, %v", sysfsLib, l, err)
	}
	dir = fakeLibraries(t, ibverbs)
	_, err = findLibraries(func(string) string { return dir })
	refuses(t, err, "VERBENA_LIB", engineLib, "make cabi")
	_, err = librariesIn(filepath.Join(t.TempDir(), "a:b"))
	refuses(t, err, "without colon")
}

func TestMissingLibrariesNameTheCommand(t *testing.T) {
	_, err := findLibraries(func(string) string { return "" })
	if err == nil {
		t.Skip("the libraries are installed on this machine")
	}
	refuses(t, err, "make cabi", "VERBENA_LIB", "/usr/lib/verbena")
}

func TestEnvironmentKeepsWhatThereWas(t *testing.T) {
	s := settings{libraries: "/lib/v", preloads: []string{"/lib/v/s.so", "/lib/v/p.so"}, tree: "/tmp/t"}
	old := []string{"A=1", "LD_LIBRARY_PATH=/x:/lib/v", "LD_PRELOAD=q.so", "GODEBUG=madvdontneed=1"}
	want := []string{"A=1", "GODEBUG=madvdontneed=1", "LD_LIBRARY_PATH=/lib/v:/x",
		"LD_PRELOAD=/lib/v/s.so:/lib/v/p.so:q.so", "VERBENA_SYSFS=/tmp/t"}
	if got := s.environ(old); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if got := s.environ(s.environ(old)); !slices.Equal(got, want) {
		t.Errorf("a second time: %q", got)
	}
}

func TestExportsAreQuotedForTheShell(t *testing.T) {
	s := settings{libraries: "/it's"}
	got := s.exports(func(name string) string {
		return map[string]string{"VERBENA_DEVICES": "a=::1"}[name]
	})
	want := "export LD_LIBRARY_PATH='/it'\\''s'\nexport VERBENA_DEVICES='a=::1'\n"
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// program writes an ELF file with the given loader, DT_RPATH and DT_RUNPATH; empty ones are left out.
func program(t *testing.T, machine elf.Machine, loader, rpath, runpath string) string {
	t.Helper()
	const header, ph, sh = 64, 56, 64
	strs := "\x00" + rpath + "\x00" + runpath + "\x00"
	var dynamic bytes.Buffer
	put := func(tag elf.DynTag, v int) {
		_ = binary.Write(&dynamic, binary.LittleEndian, []uint64{uint64(tag), uint64(v)})
	}
	if rpath != "" {
		put(elf.DT_RPATH, 1)
	}
	if runpath != "" {
		put(elf.DT_RUNPATH, 2+len(rpath))
	}
	put(elf.DT_NULL, 0)
	at := uint64(header + ph)
	interp := at
	dynstr := interp + uint64(len(loader))
	dyn := dynstr + uint64(len(strs))
	sections := dyn + uint64(dynamic.Len())
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: 1, Phoff: header, Shoff: sections,
		Ehsize: header, Phentsize: ph, Phnum: 1, Shentsize: sh, Shnum: 3, Shstrndx: 1}
	copy(h.Ident[:], "\x7fELF\x02\x01\x01")
	p := elf.Prog64{Type: uint32(elf.PT_INTERP), Off: interp, Filesz: uint64(len(loader))}
	if loader == "" {
		p.Type = uint32(elf.PT_LOAD)
	}
	var b bytes.Buffer
	for _, v := range []any{h, p, []byte(loader), []byte(strs), dynamic.Bytes(), elf.Section64{},
		elf.Section64{Type: uint32(elf.SHT_STRTAB), Off: dynstr, Size: uint64(len(strs))},
		elf.Section64{Type: uint32(elf.SHT_DYNAMIC), Off: dyn, Size: uint64(dynamic.Len()), Link: 1, Entsize: 16}} {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, b.Bytes(), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestProgramsThatCannotLoadTheLibrariesAreNamed(t *testing.T) {
	machine, ok := machines[runtime.GOARCH]
	if !ok || runtime.GOOS == "windows" {
		t.Skip("no C libraries for this system")
	}
	uid := os.Getuid()
	good := program(t, machine, "/lib64/ld-linux-x86-64.so.2", "", "")
	if path, err := inspect(good, uid); err != nil || path != good {
		t.Errorf("a good program: %q, %v", path, err)
	}
	_, err := inspect(program(t, machine, "", "", ""), uid)
	refuses(t, err, "statically linked", "link it dynamically")
	_, err = inspect(program(t, machine, "/lib/ld-musl-x86_64.so.1", "", ""), uid)
	refuses(t, err, "musl", "glibc")
	_, err = inspect(program(t, elf.EM_386, "/lib/ld-linux.so.2", "", ""), uid)
	refuses(t, err, "EM_386", "must be one for")
	_, err = inspect("no-such-program-of-verbena", uid)
	refuses(t, err, "no such program in PATH")

	own := fakeLibraries(t, ibverbs)
	_, err = inspect(program(t, machine, "/lib64/ld", own, ""), uid)
	refuses(t, err, "DT_RPATH", own, "patchelf")
	if _, err := inspect(program(t, machine, "/lib64/ld", own, "/other"), uid); err != nil {
		t.Errorf("DT_RUNPATH: %v", err)
	}
	if _, err := inspect(program(t, machine, "/lib64/ld", t.TempDir(), ""), uid); err != nil {
		t.Errorf("DT_RPATH without our library: %v", err)
	}
}

func TestScriptsAreJudgedByTheirInterpreter(t *testing.T) {
	machine, ok := machines[runtime.GOARCH]
	if !ok || runtime.GOOS == "windows" {
		t.Skip("no C libraries for this system")
	}
	script := filepath.Join(t.TempDir(), "script")
	text := "#! " + program(t, machine, "", "", "") + " -x\nexit\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := inspect(script, os.Getuid())
	refuses(t, err, "statically linked")
}

func TestPrivilegedProgramsAreNamed(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the C libraries are for Linux")
	}
	path := program(t, machines[runtime.GOARCH], "/lib64/ld", "", "")
	if err := os.Chmod(path, 0o700|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	if _, err := inspect(path, os.Getuid()); err != nil {
		t.Errorf("as its owner: %v", err)
	}
	_, err := inspect(path, os.Getuid()+1)
	refuses(t, err, "set-user-ID", "LD_LIBRARY_PATH")
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "the program is missing"},
		{[]string{"--env", "true"}, "must be one of them"},
		{[]string{"--nope", "true"}, "unknown option --nope"},
	} {
		var out, errs bytes.Buffer
		status := run(&tool.Env{Argv0: "verbena run", Stdout: &out, Stderr: &errs}, c.args)
		if status != 1 || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%q: status %d, %q: must say %q", c.args, status, errs.String(), c.want)
		}
	}
}

func TestEnvPrintsTheFolder(t *testing.T) {
	dir := fakeLibraries(t, ibverbs, engineLib)
	t.Setenv("VERBENA_LIB", dir)
	t.Setenv("VERBENA_EXPLAIN", "")
	var out, errs bytes.Buffer
	if status := run(&tool.Env{Argv0: "verbena run", Stdout: &out, Stderr: &errs},
		[]string{"--env", "--explain", "--devices", "lo"}); status != 0 {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	for _, want := range []string{"export LD_LIBRARY_PATH='" + dir, "export VERBENA_DEVICES='lo'",
		"export VERBENA_EXPLAIN='1'"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s\nmust have %s", out.String(), want)
		}
	}
}

// make build puts links to the tools into a folder that users have in PATH, with the names of the C programs.
func TestToolsOfThisBinaryAreNotThePrograms(t *testing.T) {
	machine, ok := machines[runtime.GOARCH]
	if !ok || runtime.GOOS == "windows" {
		t.Skip("no C libraries for this system")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tools, good := t.TempDir(), program(t, machine, "/lib64/ld-linux-x86-64.so.2", "", "")
	if err := os.Symlink(self, filepath.Join(tools, filepath.Base(good))); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", tools+string(filepath.ListSeparator)+filepath.Dir(good))
	if path, err := inspect(filepath.Base(good), os.Getuid()); err != nil || path != good {
		t.Errorf("%q, %v; want %s", path, err, good)
	}
	t.Setenv("PATH", tools)
	_, err = inspect(filepath.Base(good), os.Getuid())
	refuses(t, err, "only Verbena's tool")
}
