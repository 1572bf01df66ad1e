package run

import (
	"bufio"
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// machines are the processors that the C libraries are built for.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// inspect returns the path of a program, or an error that names why the libraries would not reach it.
func inspect(name string, uid int) (string, error) {
	path, err := find(name)
	switch {
	case errors.Is(err, exec.ErrDot): // the program is in the current folder, by an entry of PATH
	case errors.Is(err, exec.ErrNotFound) && !strings.ContainsRune(name, filepath.Separator):
		return "", fmt.Errorf("%s: no such program in PATH", name)
	case err != nil:
		return "", err
	}
	if err := check(path, uid, 0); err != nil {
		return "", err
	}
	return path, nil
}

// find looks for a program as exec.LookPath does, but passes over the links of PATH to this binary, which has tools of
// the same names: make build puts them beside it.
func find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if strings.ContainsRune(name, filepath.Separator) || !own(path) {
		return path, err
	}
	for _, folder := range filepath.SplitList(os.Getenv("PATH")) {
		other, err := exec.LookPath(cmp.Or(folder, ".") + string(filepath.Separator) + name)
		if err == nil && !own(other) {
			return other, nil
		}
	}
	return "", fmt.Errorf("%s: PATH has only Verbena's tool of this name: it runs without verbena run", name)
}

// own reports whether the file is this binary.
func own(path string) bool {
	self, err := os.Executable()
	if err != nil {
		return false
	}
	a, err := os.Stat(self)
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

// check returns an error if the libraries would not reach the program at path.
func check(path string, uid, depth int) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrPermission) {
		return nil // it can be executed but not read: nothing to look at
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := privileged(f, uid); err != nil {
		return fmt.Errorf("%s: %w: the system then ignores LD_LIBRARY_PATH; run a copy of the file without them", path, err)
	}
	if shell := interpreter(f); shell != "" {
		if depth > 3 {
			return nil // the kernel will say what is wrong
		}
		return check(shell, uid, depth+1)
	}
	e, err := elf.NewFile(f)
	if err != nil {
		return nil // no program that we know; execve will answer
	}
	return linked(path, e)
}

// interpreter returns the program that a script's first line names; "" if f is no script.
func interpreter(f *os.File) string {
	defer func() { _, _ = f.Seek(0, io.SeekStart) }()
	line, _ := bufio.NewReader(io.LimitReader(f, 256)).ReadString('\n')
	rest, ok := strings.CutPrefix(line, "#!")
	if words := strings.Fields(rest); ok && len(words) > 0 {
		return words[0]
	}
	return ""
}

// linked returns an error if the program does not load shared libraries, or not ours.
func linked(path string, e *elf.File) error {
	if want, ok := machines[runtime.GOARCH]; ok && e.Machine != want {
		return fmt.Errorf("%s: it is a program for %s: must be one for %s, as the libraries are", path, e.Machine, want)
	}
	loader := ""
	for _, p := range e.Progs {
		if p.Type == elf.PT_INTERP {
			text := make([]byte, min(p.Filesz, 4096))
			n, _ := p.ReadAt(text, 0)
			loader = strings.TrimRight(string(text[:n]), "\x00")
		}
	}
	switch {
	case loader == "":
		return fmt.Errorf("%s: it is statically linked and loads no libibverbs.so.1: link it dynamically%s", path, inGo(e))
	case strings.Contains(filepath.Base(loader), "musl"):
		return fmt.Errorf("%s: it is linked with musl (%s), and the libraries need glibc: build it on a glibc system",
			path, loader)
	}
	return ownCopy(path, e)
}

// inGo returns a clause for programs written in Go.
func inGo(e *elf.File) string {
	if e.Section(".go.buildinfo") != nil {
		return "; a Go program uses the module's packages instead"
	}
	return ""
}

// ownCopy returns an error if the program's DT_RPATH, which precedes LD_LIBRARY_PATH, has a libibverbs.so.1.
func ownCopy(path string, e *elf.File) error {
	if run, err := e.DynString(elf.DT_RUNPATH); err == nil && len(run) > 0 {
		return nil // DT_RPATH is ignored then
	}
	list, err := e.DynString(elf.DT_RPATH)
	if err != nil {
		return nil
	}
	for _, dir := range strings.Split(strings.Join(list, ":"), ":") {
		dir = strings.NewReplacer("$ORIGIN", filepath.Dir(path), "${ORIGIN}", filepath.Dir(path)).Replace(dir)
		own := filepath.Join(dir, ibverbs)
		if _, err := os.Stat(own); dir != "" && err == nil {
			return fmt.Errorf("%s: its DT_RPATH names %s, which precedes ours: remove it with patchelf --remove-rpath",
				path, own)
		}
	}
	return nil
}
