//go:build !linux

package udp

import "github.com/verbena-rdma/verbena/internal/link"

func configOf(link.Link) Config { panic("there are only plain links") }
