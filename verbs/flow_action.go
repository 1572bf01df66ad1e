package verbs

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

// FlowAction is an action that several rules share, by FlowSpecActionHandle (struct ibv_flow_action). It is safe for
// concurrent use.
type FlowAction struct {
	ctx      *Context
	drv      DriverFlowAction
	lifetime lifetime

	mu sync.Mutex // serialises ModifyESP and Close
	// +checklocks:mu
	flags FlowActionESPFlags
}

// FlowActionESPFlags are the mode of an ESP action (enum ibv_flow_action_esp_flags).
type FlowActionESPFlags uint32

// The flags (IBV_FLOW_ACTION_ESP_FLAGS_*). Without FullOffload the mode is inline crypto, without Transport it is
// tunnel mode, without Encrypt the action decrypts.
const (
	// the action adds and removes ESP headers, with sequence numbers; otherwise they are in the frames
	FlowActionESPFullOffload FlowActionESPFlags = 1 << 0
	FlowActionESPTransport   FlowActionESPFlags = 1 << 1
	FlowActionESPEncrypt     FlowActionESPFlags = 1 << 2
	// inline crypto with ESN: numbers from 2^31 on belong to ESN, smaller ones to ESN+1
	FlowActionESPESNNewWindow FlowActionESPFlags = 1 << 3

	flowActionESPAll = FlowActionESPFullOffload | FlowActionESPTransport | FlowActionESPEncrypt | FlowActionESPESNNewWindow
)

var flowActionESPNames = []string{"FULL_OFFLOAD", "TRANSPORT", "ENCRYPT", "ESN_NEW_WINDOW"}

// String joins the names of the flags without IBV_FLOW_ACTION_ESP_FLAGS_.
func (f FlowActionESPFlags) String() string { return flagsOf(flowActionESPNames, uint64(f), "|") }

// FlowActionESP describes a security association (struct ibv_flow_action_esp). All fields but Flags are of full offload
// mode and must be 0 otherwise.
type FlowActionESP struct {
	SPI           uint32
	Seq           uint32 // low half of the number of the last packet: the next one sent has Seq+1
	TFCPad        uint32 // bytes of padding that hides the length of a packet, 0 to 65535; tunnel mode only
	Flags         FlowActionESPFlags
	HardLimitPkts uint64 // after so many packets since ESP was set, all are dropped; 0: no limit
}

// FlowActionESPKeyMat is the key of AES-GCM (RFC 4106; struct ibv_flow_action_esp_keymat_aes_gcm, enum
// ibv_flow_action_esp_keymat, enum ibv_flow_action_esp_keymat_aes_gcm_iv_algo). Printing it does not show the key.
type FlowActionESPKeyMat struct {
	// IV of the first packet, full offload mode; later ones count up. If ModifyESP sets the same key and salt, the IVs
	// continue. Inline mode starts at a random IV.
	IV     uint64
	Salt   [4]byte
	ICVLen uint32 // bytes of the integrity check value: 8, 12 or 16
	Key    []byte // 16, 24 or 32 bytes
}

// Format prints the lengths instead of the key and the salt.
func (k FlowActionESPKeyMat) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "AES-GCM key of %d bytes, ICV of %d bytes", len(k.Key), k.ICVLen)
}

// FlowActionESPReplayProto is a kind of replay protection (enum ibv_flow_action_esp_replay).
type FlowActionESPReplayProto uint32

// The kinds (IBV_FLOW_ACTION_ESP_REPLAY_*).
const (
	FlowActionESPReplayNone FlowActionESPReplayProto = 0 // ModifyESP only: ends the protection
	FlowActionESPReplayBMP  FlowActionESPReplayProto = 1 // a bitmap
)

// String returns the name without IBV_FLOW_ACTION_ESP_REPLAY_.
func (p FlowActionESPReplayProto) String() string {
	return nameOf("FlowActionESPReplayProto", []string{"NONE", "BMP"}, int64(p))
}

// MaxFlowActionESPReplay is the largest replay window.
const MaxFlowActionESPReplay = 4096

// FlowActionESPReplay is the replay protection of an action that decrypts in full offload mode (struct
// ibv_flow_action_esp_replay_bmp).
type FlowActionESPReplay struct {
	Proto FlowActionESPReplayProto
	Size  uint32 // sequence numbers of the window, 1 to MaxFlowActionESPReplay
}

// FlowActionESPAttr holds the attributes of an ESP action (struct ibv_flow_action_esp_attr, enum
// ibv_flow_action_esp_mask). Those of ModifyESP that are nil stay as they are.
type FlowActionESPAttr struct {
	ESP    *FlowActionESP
	KeyMat *FlowActionESPKeyMat
	Replay *FlowActionESPReplay // nil: no protection
	// Encap holds the values of the headers around ESP, whose masks are ignored (struct ibv_flow_action_esp_encap):
	// IPv4 or IPv6 in tunnel mode, UDP if there is UDP encapsulation (RFC 3948). Full offload mode only. A TTL or hop
	// limit of 0 stands for 64.
	Encap []FlowSpec
	// ESN is the high half of the sequence numbers, which have 64 bits then.
	ESN *uint32
}

// CreateFlowActionESP creates an action that encrypts or decrypts IPsec packets (ibv_create_flow_action_esp). attr,
// with the key, is copied. A rule with the action must be EGRESS if it encrypts, and must not be if it decrypts; in
// inline mode it must have specifications of the outer IP and ESP headers.
//
// In full offload mode an action that encrypts makes an ESP packet of an IP packet, and one that decrypts makes the IP
// packet of an ESP packet with its SPI. In inline mode the ESP header is in the frames, and the payload between it and
// the end of the packet is encrypted, or decrypted, in place; an action that encrypts adds trailer and ICV and replaces
// the IV, one that decrypts removes trailer and ICV. Inline encryption is of tunnel mode, because the trailer must name
// the protocol of the payload.
//
// Frames that cannot be encrypted, decrypted or authenticated, and those that were received before, are dropped. After
// the action the rule delivers the changed frame; with FlowDontTrap the following rules see it.
//
// Errors: EINVAL for bad or missing attributes. EOPNOTSUPP for features that the device lacks. ENOMEM without
// resources.
func (vctx *Context) CreateFlowActionESP(attr *FlowActionESPAttr) (*FlowAction, error) {
	const op = "create_flow_action_esp"
	switch {
	case attr == nil:
		return nil, newError(op, vctx.obj(), EINVAL, "the attributes are nil")
	case attr.ESP == nil:
		return nil, newError(op, vctx.obj(), EINVAL, "ESP is nil")
	case attr.KeyMat == nil:
		return nil, newError(op, vctx.obj(), EINVAL, "KeyMat is nil")
	case attr.Replay != nil && attr.Replay.Proto == FlowActionESPReplayNone:
		return nil, newError(op, vctx.obj(), EINVAL, "Replay NONE: must be nil, or BMP")
	}
	if err := attr.check(attr.ESP.Flags); err != nil {
		return nil, badInput(op, vctx.obj(), err)
	}
	if attr.ESP.Flags&(FlowActionESPFullOffload|FlowActionESPTransport) == FlowActionESPFullOffload &&
		!slices.ContainsFunc(attr.Encap, isIP) {
		return nil, newError(op, vctx.obj(), EINVAL, "tunnel mode: Encap must have an IP header")
	}
	if err := vctx.use(op, kindFlowAction); err != nil {
		return nil, err
	}
	drv, err := vctx.drv.CreateFlowActionESP(attr)
	if err != nil {
		vctx.lifetime.drop(kindFlowAction)
		return nil, driverError(op, vctx.obj(), err)
	}
	return &FlowAction{ctx: vctx, drv: drv, flags: attr.ESP.Flags}, nil
}

// ModifyESP changes the attributes of the action that are not nil, for all of its rules at once
// (ibv_modify_flow_action_esp). ESP.Flags may differ from the action's in FlowActionESPESNNewWindow only. A failure
// changes nothing. The errors are those of CreateFlowActionESP.
func (a *FlowAction) ModifyESP(attr *FlowActionESPAttr) error {
	const op = "modify_flow_action_esp"
	a.mu.Lock()
	defer a.mu.Unlock()
	flags := a.flags
	switch {
	case a.lifetime.closed.Load():
		return errClosed(op, a.obj())
	case a.ctx.isRemoved():
		return errRemoved(op, a)
	case attr == nil:
		return newError(op, a.obj(), EINVAL, "the attributes are nil")
	case attr.ESP != nil:
		flags = attr.ESP.Flags
	}
	if changed := (flags ^ a.flags) &^ FlowActionESPESNNewWindow; changed != 0 {
		return newError(op, a.obj(), EINVAL, "%v cannot be changed: must be of %v", changed, FlowActionESPESNNewWindow)
	}
	if err := attr.check(flags); err != nil {
		return badInput(op, a.obj(), err)
	}
	if attr.Encap != nil && flags&FlowActionESPTransport == 0 && !slices.ContainsFunc(attr.Encap, isIP) {
		return newError(op, a.obj(), EINVAL, "tunnel mode: Encap must have an IP header")
	}
	if err := a.drv.ModifyESP(attr); err != nil {
		return driverError(op, a.obj(), err)
	}
	a.flags = flags
	return nil
}

// Context returns the context of the action.
func (a *FlowAction) Context() *Context { return a.ctx }

func (a *FlowAction) obj() string { return "flow action of " + a.ctx.obj() }

// Close destroys the action (ibv_destroy_flow_action). EBUSY while rules use it, EINVAL if it is closed.
func (a *FlowAction) Close() error {
	const op = "destroy_flow_action"
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.lifetime.close(op, a); err != nil {
		return err
	}
	if err := destroyed(a.drv.Destroy()); err != nil {
		a.lifetime.reopen()
		return driverError(op, a.obj(), err)
	}
	a.ctx.lifetime.drop(kindFlowAction)
	return a.ctx.ended(op, a)
}

// check checks the attributes that are not nil, for an action with the given flags.
func (a *FlowActionESPAttr) check(flags FlowActionESPFlags) error {
	full := flags&FlowActionESPFullOffload != 0
	if flags&^flowActionESPAll != 0 {
		return fmt.Errorf("unknown flags %v; must be of %v", flags&^flowActionESPAll, flowActionESPAll)
	}
	if full && flags&FlowActionESPESNNewWindow != 0 {
		return errors.New("ESN_NEW_WINDOW with FULL_OFFLOAD: is for inline crypto")
	}
	if flags&(FlowActionESPEncrypt|FlowActionESPTransport) == FlowActionESPEncrypt|FlowActionESPTransport && !full {
		return &Error{Op: "inline crypto", Errno: EOPNOTSUPP,
			Detail: "encryption in transport mode: no field names the protocol of the payload; use FULL_OFFLOAD"}
	}
	if e := a.ESP; e != nil {
		if err := e.check(full); err != nil {
			return err
		}
	}
	if k := a.KeyMat; k != nil {
		if n := len(k.Key); n != 16 && n != 24 && n != 32 {
			return fmt.Errorf("a key of %d bytes: must have 16, 24 or 32", n)
		}
		if k.ICVLen != 8 && k.ICVLen != 12 && k.ICVLen != 16 {
			return fmt.Errorf("ICVLen %d: must be 8, 12 or 16", k.ICVLen)
		}
	}
	if r := a.Replay; r != nil {
		switch {
		case r.Proto > FlowActionESPReplayBMP:
			return fmt.Errorf("unknown replay protection %v; must be NONE or BMP", r.Proto)
		case !full || flags&FlowActionESPEncrypt != 0:
			return errors.New("replay protection is for decryption with FULL_OFFLOAD")
		case r.Proto == FlowActionESPReplayBMP && (r.Size < 1 || r.Size > MaxFlowActionESPReplay):
			return fmt.Errorf("a replay window of %d: must be 1 to %d", r.Size, MaxFlowActionESPReplay)
		}
	}
	return a.checkEncap(full, flags&FlowActionESPTransport != 0)
}

func (e *FlowActionESP) check(full bool) error {
	switch {
	case !full && (e.SPI != 0 || e.Seq != 0 || e.TFCPad != 0 || e.HardLimitPkts != 0):
		return errors.New("SPI, Seq, TFCPad and HardLimitPkts must be 0 without FULL_OFFLOAD")
	case e.TFCPad > 0xffff:
		return fmt.Errorf("TFCPad %d: must be 0 to 65535", e.TFCPad)
	case e.TFCPad != 0 && e.Flags&FlowActionESPTransport != 0:
		return fmt.Errorf("TFCPad %d: must be 0 in transport mode", e.TFCPad)
	}
	return nil
}

func (a *FlowActionESPAttr) checkEncap(full, transport bool) error {
	if len(a.Encap) > 0 && !full {
		return errors.New("there is Encap without FULL_OFFLOAD")
	}
	seen := [2]bool{} // IP, UDP
	for i, s := range a.Encap {
		at := 0
		switch s := s.(type) {
		case FlowSpecIPv4:
		case FlowSpecIPv4Ext:
			if s.Val.Flags&^2 != 0 || s.Val.Proto != 0 {
				return fmt.Errorf("header %d of Encap: flags %#x, protocol %d: must be 0 or 2, and 0", i, s.Val.Flags, s.Val.Proto)
			}
		case FlowSpecIPv6:
			if s.Val.FlowLabel>>20 != 0 || s.Val.NextHdr != 0 {
				return fmt.Errorf("header %d of Encap: flow label %#x, next header %d: must be 0 to 0xfffff, and 0", i,
					s.Val.FlowLabel, s.Val.NextHdr)
			}
		case FlowSpecUDP:
			if s.Val.DstPort == 0 {
				return fmt.Errorf("header %d of Encap: UDP port 0", i)
			}
			at = 1
		default:
			return &Error{Op: "encapsulation", Errno: EOPNOTSUPP, Detail: fmt.Sprintf(
				"Encap %d is of type %T: must be FlowSpecIPv4, FlowSpecIPv4Ext, FlowSpecIPv6 or FlowSpecUDP", i, s)}
		}
		if at == 0 && transport {
			return fmt.Errorf("header %d of Encap: an outer IP header in transport mode", i)
		}
		if seen[at] || at == 0 && seen[1] {
			return fmt.Errorf("header %d of Encap: must be one IP header, then one UDP header", i)
		}
		seen[at] = true
	}
	return nil
}

func isIP(s FlowSpec) bool {
	_, udp := s.(FlowSpecUDP)
	return !udp
}

// usable returns an error if a rule of a context cannot have the action.
func (a *FlowAction) usable(vctx *Context, attr *FlowAttr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	egress, encrypts := attr.Flags&FlowEgress != 0, a.flags&FlowActionESPEncrypt != 0
	switch {
	case a.lifetime.closed.Load():
		return fmt.Errorf("the action: %w", errClosed("create_flow", a.obj()))
	case a.ctx != vctx:
		return errors.New("the action belongs to another context")
	case egress != encrypts:
		return errors.New("an EGRESS rule needs an action that encrypts, another rule one that decrypts")
	case a.flags&FlowActionESPFullOffload == 0 && !attr.matchesESP():
		return errors.New("an inline crypto action needs specifications of the outer IP and ESP headers")
	}
	return nil
}

// matchesESP reports whether the rule matches only ESP packets.
func (a *FlowAttr) matchesESP() bool {
	ip, esp := false, false
	for _, s := range a.Specs {
		switch s.Type() {
		case FlowSpecTypeIPv4, FlowSpecTypeIPv4Ext, FlowSpecTypeIPv6:
			ip = true
		case FlowSpecTypeESP:
			esp = true
		}
	}
	return ip && esp
}
