//go:build linux

package ctest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

type commands = func(before ...string) *exec.Cmd

// configured runs the program that prints which of its sockets are rsockets.
func configured(t *testing.T, command commands, variables ...string) (printed, messages string) {
	t.Helper()
	var errors strings.Builder
	program := command()
	program.Env = append(program.Env, append(variables, "VERBENA_SOCKETS=all")...)
	program.Stderr = &errors
	out, err := program.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, errors.String())
	}
	return strings.TrimSuffix(string(out), "\n"), errors.String()
}

func TestR_PRE_07_SizesOfTheEnvironment(t *testing.T) {
	command := prepare(t, "sockets_config.c")
	for _, c := range []struct{ sq, rq, inline, want string }{
		{"100", "200", "32", "46d 100 200 32"},
		{"", "x", "99999999999999999999", "46d 384 384 65534"}, // no number has no effect
		{"-1", "0", "-2147483649", "46d 1 1 0"},
	} {
		got, _ := configured(t, command, "SIZES=1", "RS_SQ_SIZE="+c.sq, "RS_RQ_SIZE="+c.rq, "RS_INLINE="+c.inline)
		if got != c.want {
			t.Errorf("RS_SQ_SIZE=%s RS_RQ_SIZE=%s RS_INLINE=%s: %q; want %q", c.sq, c.rq, c.inline, got, c.want)
		}
	}
}

// The program's name is "program".
func TestR_PRE_08_TheFileSaysWhichSocketsAreTaken(t *testing.T) {
	command := prepare(t, "sockets_config.c")
	for _, c := range []struct{ file, want string }{
		{"", "46d"},
		{"# PROGRAM DOMAIN TYPE PROTOCOL\n\n", "46d"},
		{"* * * *\n", "46d"},
		{"program * * *", "46d"},
		{"PROG * * *\n", "46d"}, // the beginning of the name, in any case
		{"programs * * *\nother INET * *\n", ""},
		{"* INET STREAM TCP\r\n", "4"},
		{"\t* af_inet6\tSOCK_STREAM IPPROTO_TCP # comment\n", "6"},
		{"* PF_INET DGRAM *\n", "d"},
		{"* INET * UDP\n* INET6 STREAM *\n", "6d"},
		{"* INET STREAM UDP\n", ""},
		{"* IB * *\n", ""},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "preload_config"), []byte(c.file), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, errors := configured(t, command, "VERBENA_RSOCKET_CONFIG="+dir); got != c.want || errors != "" {
			t.Errorf("%q: %q; want %q\n%s", c.file, got, c.want, errors)
		}
	}
}

// Two processes of rsync use one connection. Its sockets stay TCP without a line that says otherwise.
func TestR_PRE_08_RsyncStaysTCP(t *testing.T) {
	command := prepare(t, "sockets_config.c")
	rsync := func(before ...string) *exec.Cmd {
		program := command(before...)
		program.Path = program.Args[len(program.Args)-1]
		program.Args = []string{"/usr/bin/rsync"}
		return program
	}
	dir := t.TempDir()
	for file, want := range map[string]string{"": "", "rsync * * *\n": "46d"} {
		if err := os.WriteFile(filepath.Join(dir, "preload_config"), []byte(file), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, _ := configured(t, rsync, "VERBENA_RSOCKET_CONFIG="+dir); got != want {
			t.Errorf("%q: %q; want %q", file, got, want)
		}
	}
}

// Lines that are wrong are named and have no effect. A file is read up to 64 KiB, and 256 lines of a program count.
func TestR_PRE_08_BadFiles(t *testing.T) {
	many := strings.Repeat("* INET6 * *\n", 300)
	command := prepare(t, "sockets_config.c")
	for _, c := range []struct{ file, want, errors string }{
		{"* INET\n* AX25 * *\n* INET * * *\n", "46d", "line 1:"},
		{"* inetx STREAM *\n* INET6 * *\n", "6", "line 1:"},
		{"\x01\xff\n* INET STREAM *\n", "4", "line 1:"},
		{"* INET STREAM *\n\x00* INET6 * *\n", "4", ""},
		{strings.Repeat("x\n", 30000) + "* INET * *\n", "4d", "line 3:"},
		{strings.Repeat("a", 1<<20), "46d", "line 1:"},
		{many + "* INET * *\n", "6", ""},
		{strings.Repeat("#\n", 40000) + "* INET6 * *\n", "46d", ""},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "preload_config"), []byte(c.file), 0o644); err != nil {
			t.Fatal(err)
		}
		got, errors := configured(t, command, "VERBENA_RSOCKET_CONFIG="+dir)
		if got != c.want || !strings.Contains(errors, c.errors) || len(errors) > 1000 {
			t.Errorf("%.40q: %q; want %q; messages: %.1000q", c.file, got, c.want, errors)
		}
	}
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "preload_config"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, _ := configured(t, command, "VERBENA_RSOCKET_CONFIG="+dir); got != "46d" {
		t.Errorf("a pipe: %q", got)
	}
}
