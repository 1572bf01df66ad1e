package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/interop/internal/proc"
)

// The users of the case, and the group that may attach to serve.
const (
	member, other, group = 2001, 2002, 3000
)

// as starts a command as another user.
func (p *place) as(uid uint32, path string, args ...string) *program {
	cmd := p.command(path, args...)
	gid := uint32(group)
	if uid == outsider {
		gid = uid
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	g, err := p.start(cmd)
	if err != nil {
		g = &program{&proc.Proc{Cmd: cmd, Out: &proc.Output{}, Done: make(chan struct{})}}
		close(g.Done)
	}
	return g
}

// plant replaces the files in a folder by links to other files, as far as it can, for some seconds.
func plant(args []string) error {
	folder, victims := args[0], args[1:]
	planted := 0
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		_ = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || path == folder || d.IsDir() || d.Type()&fs.ModeSymlink != 0 {
				return nil
			}
			if os.Remove(path) == nil {
				if os.Symlink(victims[planted%len(victims)], path) == nil {
					planted++
				}
			}
			return nil
		})
		for n := range 64 {
			dirs, _ := filepath.Glob(filepath.Join(folder, "*"))
			for _, d := range append(dirs, folder) {
				if os.Symlink(victims[n%len(victims)], filepath.Join(d, fmt.Sprintf("slot-%d.lock", n))) == nil {
					planted++
				}
			}
		}
	}
	fmt.Println("planted:", planted)
	return nil
}

// target is a file that a planted link leads to.
type target struct {
	name string
	mode os.FileMode
	uid  int
}

var targets = []target{{"passwd", 0o644, 0}, {"sudo", os.ModeSetuid | 0o755, 0}, {"id_rsa", 0o600, other}}

// make makes the file in a folder.
func (v target) make(dir string) error {
	name := filepath.Join(dir, v.name)
	err := os.WriteFile(name, []byte("secret"), 0o600)
	if err == nil {
		err = os.Chown(name, v.uid, 0)
	}
	if err == nil {
		err = os.Chmod(name, v.mode)
	}
	return err
}

// unchanged checks that a folder has the targets, with their owners and modes, and no other file.
func unchanged(dir string) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(list) != len(targets) {
		return fmt.Errorf("a file was created: %v", list)
	}
	for _, v := range targets {
		info, err := os.Stat(filepath.Join(dir, v.name))
		if err != nil {
			return err
		}
		const bits = os.ModePerm | os.ModeSetuid
		if st := info.Sys().(*syscall.Stat_t); info.Mode()&bits != v.mode || int(st.Uid) != v.uid || st.Gid != 0 {
			return fmt.Errorf("%s has mode %v, user %d, group %d", v.name, info.Mode(), st.Uid, st.Gid)
		}
	}
	return nil
}

// serveLinks has a member of the group plant links in the folder of serve while others attach. The files of root and
// of others must not change.
func serveLinks(p *place) (string, error) {
	if os.Getenv(oneUser) != "" {
		return "", fmt.Errorf("%w: it needs root, for several users", errCannot)
	}
	run, secrets := filepath.Join(p.dir, "run"), filepath.Join(p.dir, "secrets")
	for _, d := range []string{run, secrets} {
		if err := os.Mkdir(d, 0o755); err != nil { //nolint:gosec // the files in it have modes of their own
			return "", err
		}
	}
	args := []string{"role", "plant", run}
	for _, v := range targets {
		if err := v.make(secrets); err != nil {
			return "", err
		}
		args = append(args, filepath.Join(secrets, v.name))
	}
	args = append(args, filepath.Join(secrets, "created"))
	if err := os.Chmod(secrets, 0o711); err != nil { //nolint:gosec // as a folder of users is
		return "", err
	}
	if err := os.Setenv("VERBENA_RUN", run); err != nil {
		return "", err
	}
	defer os.Unsetenv("VERBENA_RUN")
	serve, err := p.start(p.command(p.verbena, "serve", "-d", "a", "-g", fmt.Sprint(group)))
	if err != nil {
		return "", err
	}
	time.Sleep(time.Second)
	if serve.Ended() {
		return "", fmt.Errorf("serve ended: %s", proc.FirstLine(serve.Out.String()))
	}
	tool, err := p.tool()
	if err != nil {
		return "", err
	}
	planter := p.as(member, tool, args...)
	for n := 0; !planter.Ended() && n < 20; n++ {
		g := p.as(other, p.verbena, "ibv_rc_pingpong", "-d", "a", "-p", fmt.Sprint(21000+n))
		time.Sleep(300 * time.Millisecond)
		g.Kill()
	}
	<-planter.Done
	figures := strings.TrimSpace(planter.Out.String())
	if err := unchanged(secrets); err != nil {
		return figures, err
	}
	if !strings.HasPrefix(figures, "planted: ") {
		return figures, fmt.Errorf("the attacker did not run: %s", planter.Cmd)
	}
	return figures + " links, no file changed", nil
}
