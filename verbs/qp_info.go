package verbs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// QPInfo holds the information that a peer needs to connect to a QP. The two programs exchange it by any means:
// String and ParseQPInfo convert it to and from text, and encoding/json uses the same text.
type QPInfo struct {
	Type     QPType
	QPN      uint32
	PSN      uint32 // of the first packet that the QP sends
	GID      GID
	LID      uint16 // InfiniBand
	MTU      MTU    // the port's active MTU
	RdAtomic uint8  // incoming READs and atomics of the QP at once
	QKey     uint32 // UD
}

// String returns one line of text: "RC qpn=0x000011 psn=0x1a2b3c gid=::ffff:192.0.2.1 lid=0 mtu=1024 rd_atomic=16
// qkey=0x0".
func (i QPInfo) String() string {
	return fmt.Sprintf("%v qpn=0x%06x psn=0x%06x gid=%v lid=%d mtu=%v rd_atomic=%d qkey=%#x",
		i.Type, i.QPN, i.PSN, i.GID, i.LID, i.MTU, i.RdAtomic, i.QKey)
}

// ParseQPInfo parses the result of String. Unknown keys are ignored. EINVAL for other text.
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
		return errors.New("the text is empty")
	}
	for t := range transitionsOf {
		if t.String() == words[0] {
			i.Type = t
		}
	}
	if i.Type == 0 {
		return fmt.Errorf("unknown QP type %q", words[0])
	}
	seen := make(map[string]bool)
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		if err := i.set(key, value); err != nil {
			return fmt.Errorf("%q: %w", word, err)
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
			err = fmt.Errorf("must have %d bits or fewer", bits)
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
			err = errors.New("must be 256, 512, 1024, 2048 or 4096")
		}
	case "rd_atomic":
		i.RdAtomic = uint8(number(8))
	case "qkey":
		i.QKey = uint32(number(32))
	}
	return err
}

// MarshalText returns String; of the zero QPInfo, a field that the program has not set, it returns the empty text.
func (i QPInfo) MarshalText() ([]byte, error) {
	if i == (QPInfo{}) {
		return []byte{}, nil
	}
	return []byte(i.String()), nil
}

// UnmarshalText parses as ParseQPInfo does. The empty text is the zero QPInfo.
func (i *QPInfo) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*i = QPInfo{}
		return nil
	}
	v, err := ParseQPInfo(string(text))
	if err == nil {
		*i = v
	}
	return err
}
