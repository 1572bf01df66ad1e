//go:build unix

package run

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

func TestTreeDescribesADevice(t *testing.T) {
	t.Setenv("VERBENA_DEVICES", "vrb_tree=127.0.0.1")
	t.Setenv("VERBENA_PROVIDER", "soft")
	devices, err := verbs.Devices()
	if err != nil || len(devices) != 1 {
		t.Fatalf("%v, %v", devices, err)
	}
	tr := newTree()
	if err := tr.describe(0, devices[0]); err != nil {
		t.Fatal(err)
	}
	const port = "class/infiniband/vrb_tree/ports/1/"
	for path, want := range map[string]string{
		"class/infiniband_verbs/uverbs0/ibdev": "vrb_tree\n",
		"dev/infiniband/uverbs0@":              "/dev/null",
		"class/infiniband/vrb_tree/node_type":  "1: CA\n",
		port + "state":                         "4: ACTIVE\n",
		port + "phys_state":                    "5: LinkUp\n",
		port + "link_layer":                    "Ethernet\n",
		port + "pkeys/0":                       "0xffff\n",
		port + "hw_counters/sent_pkts":         "0\n",
		port + "counters/port_xmit_data":       "0\n",
	} {
		if tr[path] != want {
			t.Errorf("%s: %q: must be %q", path, tr[path], want)
		}
	}
	found := false
	for path, text := range tr {
		if n, ok := strings.CutPrefix(path, port+"gids/"); ok && text == "0000:0000:0000:0000:0000:ffff:7f00:0001\n" {
			found = tr[port+"gid_attrs/types/"+n] == "RoCE v2\n"
		}
	}
	if !found {
		t.Errorf("no RoCE v2 entry for 127.0.0.1 in %v", tr)
	}
}

func TestEqualTreesShareAFolder(t *testing.T) {
	root := t.TempDir()
	tr := tree{"class/a/b": "1\n", "dev/x@": "/dev/null"}
	dir, err := tr.write(root)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "class/a/b")); err != nil || string(text) != "1\n" {
		t.Errorf("%q, %v", text, err)
	}
	if to, err := os.Readlink(filepath.Join(dir, "dev/x")); err != nil || to != "/dev/null" {
		t.Errorf("%q, %v", to, err)
	}
	if again, err := tr.write(root); err != nil || again != dir {
		t.Errorf("a second time: %q, %v: must be %q", again, err, dir)
	}
	tr["class/a/b"] = "2\n"
	if other, err := tr.write(root); err != nil || other == dir {
		t.Errorf("another tree: %q, %v: must not be %q", other, err, dir)
	}
	if entries, _ := os.ReadDir(root); len(entries) != 2 {
		t.Errorf("%v: must be 2 trees and nothing else", entries)
	}
}

func TestOldTreesAreRemoved(t *testing.T) {
	root := t.TempDir()
	dir, err := tree{"a": "1"}.write(root)
	if err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-2 * kept)
	if err := os.Chtimes(dir, long, long); err != nil {
		t.Fatal(err)
	}
	if _, err := (tree{"a": "2"}).write(root); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is still there", dir)
	}
}

// Another user who has the name of the folder for temporary files does not keep programs from running.
func TestPrivateFolderOfOther(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("no right to give a folder to another user")
	}
	defer func(was string) { temporary = was }(temporary)
	temporary = t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", "")
	theirs := filepath.Join(temporary, "verbena-0")
	for _, path := range []string{theirs, theirs + "-1"} {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, 12345, 0); err != nil {
			t.Fatal(err)
		}
	}
	first, err := privateFolder()
	if err != nil || owned(first) != nil {
		t.Fatal(first, err)
	}
	if again, err := privateFolder(); again != first || err != nil {
		t.Errorf("%s the second time, %v, want %s", again, err, first)
	}
}

func TestFoldersOfOthersAreRefused(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	if err := os.Mkdir(target, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := claim(target); err != nil {
		t.Errorf("a folder of ours: %v", err)
	}
	symbolic := filepath.Join(dir, "link")
	if err := os.Symlink(target, symbolic); err != nil {
		t.Fatal(err)
	}
	_, err := claim(symbolic)
	refuses(t, err, "symbolic link")
	if err := os.Chmod(target, 0o777); err != nil {
		t.Fatal(err)
	}
	_, err = claim(target)
	refuses(t, err, "0777", "chmod 700")
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = claim(file)
	refuses(t, err, "is a file")
	if os.Getuid() == 0 {
		theirs := filepath.Join(dir, "theirs")
		if err := os.Mkdir(theirs, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(theirs, 12345, 0); err != nil {
			t.Fatal(err)
		}
		_, err = claim(theirs)
		refuses(t, err, "belongs to user 12345")
	}
}
