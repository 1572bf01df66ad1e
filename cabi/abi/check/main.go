// Check compares the headers of cabi/abi with those of libibverbs, librdmacm and libibumad that are installed: the size
// of every structure, the offset and size of every member, the value of every enumerator. It needs gcc and
// libibverbs-dev; librdmacm-dev and libibumad-dev for the others.
//
//	go run ./cabi/abi/check            compares with the headers of the system
//	go run ./cabi/abi/check -I FOLDER  compares with infiniband/verbs.h in FOLDER, of any release from 44 on
//
// Installed headers are only measured: the program reads names out of them and has the compiler print numbers.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

func main() {
	var include folders
	flag.Var(&include, "I", "a `folder` with infiniband/verbs.h; may be repeated")
	flag.Parse()
	if err := run("cabi/abi", include); err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(1)
	}
}

// folders is a flag that may be repeated.
type folders []string

func (f *folders) String() string { return fmt.Sprint(*f) }

// Set adds a folder.
func (f *folders) Set(s string) error {
	*f = append(*f, s)
	return nil
}

// header is one side of the comparison.
type header struct {
	include string   // lines of C
	flags   []string // of gcc
	names   *names
}

func run(dir string, include []string) error {
	if _, err := exec.LookPath("gcc"); err != nil {
		return fmt.Errorf("gcc is not installed: apt-get install gcc libc6-dev")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	ours := &header{include: "#include \"verbena_cm.h\"\n#include \"verbena_umad.h\"\n", flags: []string{"-I", abs}}
	theirs := &header{include: "#include <infiniband/verbs.h>\n#include <infiniband/tm_types.h>\n"}
	for _, f := range include {
		theirs.flags = append(theirs.flags, "-I", f)
	}
	const cm = "#include <rdma/rdma_cma.h>\n"
	if _, err := gcc(cm, append([]string{"-E", "-P", "-"}, theirs.flags...)...); err != nil {
		fmt.Println("rdma_cma.h is not compared: librdmacm-dev has it")
	} else {
		theirs.include += cm
		macros = append(macros, cmMacros...)
	}
	const mad = "#include <infiniband/umad.h>\n"
	if _, err := gcc(mad, append([]string{"-E", "-P", "-"}, theirs.flags...)...); err != nil {
		fmt.Println("umad.h is not compared: libibumad-dev has it")
	} else {
		theirs.include += mad
		macros = append(macros, "UMAD_CA_NAME_LEN", "UMAD_CA_MAX_PORTS")
	}
	for _, h := range []*header{ours, theirs} {
		text, err := gcc(h.include, append([]string{"-E", "-P", "-"}, h.flags...)...)
		if err != nil {
			return fmt.Errorf("%s%w (libibverbs-dev has the headers to compare with)", h.include, err)
		}
		h.names = parse(text)
	}
	return compare(ours, theirs)
}

// gcc runs the compiler on source and returns its output.
func gcc(source string, args ...string) (string, error) {
	cmd := exec.Command("gcc", append([]string{"-x", "c", "-D_GNU_SOURCE"}, args...)...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	go func() {
		fmt.Fprint(stdin, source)
		stdin.Close()
	}()
	out, err := cmd.Output()
	if e, ok := err.(*exec.ExitError); ok {
		return "", fmt.Errorf("gcc: %s", e.Stderr)
	}
	return string(out), err
}
