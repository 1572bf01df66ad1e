//go:build linux && cgo

package main

// #include "engine.h"
import "C"

import (
	"encoding/binary"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

// The structures of ESP actions in C.

type cESPAttr struct {
	esp         *cESP
	keyMatProto uint32
	keyMatLen   uint16
	keyMat      *cKeyMat
	replayProto uint32
	replayLen   uint16
	replay      *uint32 // struct ibv_flow_action_esp_replay_bmp
	encap       *cEncap
	compMask    uint32
	esn         uint32
}

type cESP struct {
	spi, seq, tfcPad, flags uint32
	hardLimitPkts           uint64
}

type cKeyMat struct {
	iv     uint64
	ivAlgo uint32
	salt   [4]byte // in the order of memory, as the bytes behind the key
	icvLen uint32
	keyLen uint32
	aesKey [32]byte
}

type cEncap struct {
	val  unsafe.Pointer
	next *cEncap
	len  uint16
	typ  uint16
}

type actionObj struct{ *verbs.FlowAction }

//export vrb_create_action_esp
func vrb_create_action_esp(h, attr unsafe.Pointer, out *unsafe.Pointer) C.int {
	c := (*contextObj)(h)
	in, e := (*cESPAttr)(attr).convert()
	if e != 0 {
		return C.int(e)
	}
	a, err := c.CreateFlowActionESP(in)
	if err != nil {
		return errno(err)
	}
	*out = keep(c, kindAction, &actionObj{a}, a.Close)
	return 0
}

//export vrb_modify_action_esp
func vrb_modify_action_esp(h, attr unsafe.Pointer) C.int {
	in, e := (*cESPAttr)(attr).convert()
	if e != 0 {
		return C.int(e)
	}
	return errno((*actionObj)(h).ModifyESP(in))
}

// convert converts the attributes of an action. Package verbs checks their values.
func (c *cESPAttr) convert() (*verbs.FlowActionESPAttr, syscall.Errno) {
	if c.compMask&^1 != 0 {
		return nil, syscall.EOPNOTSUPP
	}
	a := new(verbs.FlowActionESPAttr)
	if c.compMask&1 != 0 {
		esn := c.esn
		a.ESN = &esn
	}
	if e := c.esp; e != nil {
		if e.flags&^0xf != 0 {
			return nil, syscall.EOPNOTSUPP
		}
		a.ESP = &verbs.FlowActionESP{SPI: e.spi, Seq: e.seq, TFCPad: e.tfcPad,
			Flags: verbs.FlowActionESPFlags(e.flags), HardLimitPkts: e.hardLimitPkts}
	}
	if k := c.keyMat; k != nil {
		switch {
		case c.keyMatProto != 0 || uintptr(c.keyMatLen) != unsafe.Sizeof(*k) || k.keyLen > 32:
			return nil, syscall.EINVAL
		case k.ivAlgo != 0:
			return nil, syscall.EOPNOTSUPP
		}
		a.KeyMat = &verbs.FlowActionESPKeyMat{IV: k.iv, Salt: k.salt, ICVLen: k.icvLen,
			Key: append([]byte(nil), k.aesKey[:k.keyLen]...)}
	}
	if c.replay != nil {
		a.Replay = &verbs.FlowActionESPReplay{Proto: verbs.FlowActionESPReplayProto(c.replayProto)}
		if c.replayProto != 0 {
			if c.replayLen < 4 {
				return nil, syscall.EINVAL
			}
			a.Replay.Size = *c.replay
		}
	}
	for e := c.encap; e != nil; e = e.next {
		s, errno := e.convert()
		if errno != 0 || len(a.Encap) == 2 { // an IP and a UDP header at most
			return nil, max(errno, syscall.EINVAL)
		}
		a.Encap = append(a.Encap, s)
	}
	return a, 0
}

// convert converts a header around ESP: the values of a specification.
func (e *cEncap) convert() (verbs.FlowSpec, syscall.Errno) {
	typ, at, size, n := verbs.FlowSpecType(e.typ), 8, 0, 0 // place of the values, size of the specification, of the values
	switch {
	case typ == verbs.FlowSpecTypeIPv4 && e.len == 8:
		size, n = 24, 8
	case (typ == verbs.FlowSpecTypeIPv4 || typ == verbs.FlowSpecTypeIPv4Ext) && e.len == 12: // the kernel's has all fields
		typ, size, n = verbs.FlowSpecTypeIPv4Ext, 32, 12
	case typ == verbs.FlowSpecTypeIPv6 && e.len == 40:
		size, n = 88, 40
	case typ == verbs.FlowSpecTypeUDP && e.len == 4:
		at, size, n = 6, 16, 4
	default:
		return nil, syscall.EOPNOTSUPP
	}
	if e.val == nil {
		return nil, syscall.EINVAL
	}
	const header = 20
	b := make([]byte, header+size)
	ne := binary.NativeEndian
	ne.PutUint16(b[8:], uint16(len(b)))
	b[12] = 1
	ne.PutUint32(b[header:], uint32(typ))
	ne.PutUint16(b[header+4:], uint16(size))
	copy(b[header+at:], unsafe.Slice((*byte)(e.val), n))
	rule, err := verbs.ParseFlowAttr(b, nil)
	if err != nil {
		return nil, syscall.EINVAL
	}
	return rule.Specs[0], 0
}
