package serve

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// An account is a user of the system, and its first group.
type account struct{ uid, gid int }

// Users that root gives up its rights for, the first of them that there is.
var defaultUsers = []string{"verbena", "nobody"}

const overflow = 65534 // where there is no list of users

// accountOf returns the account that the process is to have, nil if it is to keep its own.
func accountOf(name string) (*account, error) {
	if name == "" {
		if os.Geteuid() != 0 {
			return nil, nil
		}
		for _, name := range defaultUsers {
			if u, err := user.Lookup(name); err == nil {
				return numbers(u)
			}
		}
		return &account{overflow, overflow}, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.LookupId(name); err != nil {
			return nil, fmt.Errorf("--user %s: no such user", name)
		}
	}
	a, err := numbers(u)
	if err == nil && a.uid == os.Geteuid() {
		return nil, nil
	}
	if err == nil && os.Geteuid() != 0 {
		return nil, fmt.Errorf("--user %s: only root can become another user", name)
	}
	return a, err
}

func numbers(u *user.User) (*account, error) {
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(u.Gid)
	return &account{uid, gid}, err
}

// become makes the process the account's, for good.
func (a *account) become() error {
	if a == nil {
		return nil
	}
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("giving up root's groups: %w", err)
	}
	if err := syscall.Setgid(a.gid); err != nil {
		return fmt.Errorf("giving up root's group: %w", err)
	}
	if err := syscall.Setuid(a.uid); err != nil {
		return fmt.Errorf("giving up root's rights: %w", err)
	}
	return nil
}
