//go:build !unix

package rdmashow

import "os"

func changes() <-chan os.Signal { return nil }

func (s *screen) suspend() {}
