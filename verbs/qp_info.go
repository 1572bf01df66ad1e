package verbs

import (
	"fmt"
	"strconv"
	"strings"
)

// QPInfo is what a peer must know of a QP to connect to it. It travels between the two programs in any way they like:
// String and ParseQPInfo make text of it, encoding/json uses the same.
type QPInfo struct {
	Type     QPType
	QPN      uint32
	PSN      uint32 // of the first packet that the QP sends
	GID      GID
	LID      uint16 // InfiniBand
	MTU      MTU    // the port's active MTU
	RdAtomic uint8  // READs and atomics that the QP serves at once
	QKey     uint32 // UD
}

// String is one line of text: "RC qpn=0x000011 psn=0x1a2b3c gid=::ffff:192.0.2.1 lid=0 mtu=1024 rd_atomic=16
// qkey=0x0".
func (i QPInfo) String() string {
	return fmt.Sprintf("%v qpn=0x%06x psn=0x%06x gid=%v lid=%d mtu=%v rd_atomic=%d qkey=%#x",
		i.Type, i.QPN, i.PSN, i.GID, i.LID, i.MTU, i.RdAtomic, i.QKey)
}

// ParseQPInfo reads what String wrote. Keys that it does not know are ignored.
func ParseQPInfo(text string) (QPInfo, error) {
	var info QPInfo
	err := info.parse(text)
	if err != nil {
		return QPInfo{}, newError("parse_qp_info", "", EINVAL, "%q: %v", text, err)
	}
	return info, nil
}

func (i *QPInfo) parse(text string) error {
	words := strings.Fields(text)
	if len(words) == 0 {
		return fmt.Errorf("it is empty")
	}
	for t := range transitionsOf {
		if t.String() == words[0] {
			i.Type = t
		}
	}
	if i.Type == 0 {
		return fmt.Errorf("%s is not a QP type", words[0])
	}
	seen := make(map[string]bool)
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		if err := i.set(key, value); err != nil {
			return fmt.Errorf("%s: %w", word, err)
		}
		seen[key] = true
	}
	for _, key := range []string{"qpn", "psn", "gid", "mtu"} {
		if !seen[key] {
			return fmt.Errorf("%s is missing", key)
		}
	}
	return nil
}

func (i *QPInfo) set(key, value string) (err error) {
	number := func(bits int) uint64 {
		var v uint64
		v, err = strconv.ParseUint(value, 0, 64)
		if err == nil && v>>bits != 0 {
			err = fmt.Errorf("more than %d bits", bits)
		}
		return v
	}
	switch key {
	case "qpn":
		i.QPN = uint32(number(24))
	case "psn":
		i.PSN = uint32(number(24))
	case "gid":
		i.GID, err = ParseGID(value)
	case "lid":
		i.LID = uint16(number(16))
	case "mtu":
		if i.MTU = MTUOf(int(number(16))); i.MTU == 0 && err == nil {
			err = fmt.Errorf("not an MTU")
		}
	case "rd_atomic":
		i.RdAtomic = uint8(number(8))
	case "qkey":
		i.QKey = uint32(number(32))
	}
	return err
}

// MarshalText is String.
func (i QPInfo) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// UnmarshalText is ParseQPInfo.
func (i *QPInfo) UnmarshalText(text []byte) error {
	v, err := ParseQPInfo(string(text))
	if err == nil {
		*i = v
	}
	return err
}
