package ucma

import (
	"encoding/binary"
	"net/netip"

	"github.com/verbena-rdma/verbena/verbs"
)

// Commands (RDMA_USER_CM_CMD_*).
const (
	cmdCreateID     = 0
	cmdDestroyID    = 1
	cmdResolveRoute = 4
	cmdConnect      = 6
	cmdListen       = 7
	cmdAccept       = 8
	cmdReject       = 9
	cmdDisconnect   = 10
	cmdInitQPAttr   = 11
	cmdGetEvent     = 12
	cmdSetOption    = 14
	cmdNotify       = 15
	cmdLeaveMcast   = 17
	cmdQuery        = 19
	cmdBind         = 20
	cmdResolveAddr  = 21
	cmdJoinMcast    = 22
)

// MaxPrivate is the length of the field for private data (RDMA_MAX_PRIVATE_DATA). The kernel takes less, by message.
const MaxPrivate = 256

// Sizes of structures.
const (
	sockaddrLen  = 128 // struct __kernel_sockaddr_storage
	ahAttrLen    = 32  // struct ib_uverbs_ah_attr
	paramLen     = 4 + 4 + MaxPrivate + 8
	udParamLen   = 4 + 4 + ahAttrLen + MaxPrivate + 8
	eventLen     = 20 + udParamLen + 4 + 8
	eventBody    = 20           // of the union of both parameters
	eventECE     = eventLen - 8 // of struct rdma_ucm_ece
	queryAddrLen = 16 + 2*sockaddrLen + 8
	qpAttrLen    = 144
)

var ne = binary.NativeEndian

// Families of socket addresses.
const (
	afInet  = 2
	afInet6 = 10
)

// putAddr writes a socket address to b, which has sockaddrLen bytes, and returns its length. scope is the number of
// the interface of a link-local address.
func putAddr(b []byte, a netip.AddrPort, scope uint32) int {
	ip := a.Addr()
	if ip.Is4() {
		ne.PutUint16(b, afInet)
		binary.BigEndian.PutUint16(b[2:], a.Port())
		copy(b[4:], ip.AsSlice())
		return 16
	}
	ne.PutUint16(b, afInet6)
	binary.BigEndian.PutUint16(b[2:], a.Port())
	copy(b[8:], ip.AsSlice())
	ne.PutUint32(b[24:], scope)
	return 28
}

// addrOf reads a socket address; the zero AddrPort for another family.
func addrOf(b []byte) netip.AddrPort {
	port := binary.BigEndian.Uint16(b[2:])
	switch ne.Uint16(b) {
	case afInet:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:])), port)
	case afInet6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:])).Unmap(), port)
	}
	return netip.AddrPort{}
}

// ECE is struct rdma_ucm_ece.
type ECE struct{ Vendor, Options uint32 }

// Param is struct rdma_ucm_conn_param: in a command that of this side, in an event that of the peer, seen from this
// side.
type Param struct {
	QPN, QKey                          uint32
	Private                            []byte
	SRQ                                bool
	ResponderResources, InitiatorDepth uint8
	FlowControl                        bool
	RetryCount, RNRRetryCount          uint8
}

// put writes the parameters to b, which has paramLen bytes. They are all zero without p, which means that there are
// none.
func (p *Param) put(b []byte) {
	if p == nil {
		return
	}
	ne.PutUint32(b, p.QPN)
	ne.PutUint32(b[4:], p.QKey)
	n := copy(b[8:8+MaxPrivate], p.Private)
	copy(b[8+MaxPrivate:], []byte{
		uint8(min(n, MaxPrivate-1)), bit(p.SRQ), p.ResponderResources, p.InitiatorDepth, bit(p.FlowControl), p.RetryCount,
		p.RNRRetryCount, 1,
	})
}

func bit(on bool) uint8 {
	if on {
		return 1
	}
	return 0
}

// paramOf reads parameters.
func paramOf(b []byte) Param {
	t := b[8+MaxPrivate:]
	return Param{
		QPN: ne.Uint32(b), QKey: ne.Uint32(b[4:]), Private: append([]byte(nil), b[8:8+int(t[0])]...), SRQ: t[1] != 0,
		ResponderResources: t[2], InitiatorDepth: t[3], FlowControl: t[4] != 0, RetryCount: t[5], RNRRetryCount: t[6],
	}
}

// UDParam is struct rdma_ucm_ud_param: a datagram service, or a multicast group.
type UDParam struct {
	QPN, QKey uint32
	AH        verbs.AHAttr
	Private   []byte
}

// udParamOf reads the parameters of datagrams.
func udParamOf(b []byte) UDParam {
	private := b[8+ahAttrLen:]
	return UDParam{
		QPN: ne.Uint32(b), QKey: ne.Uint32(b[4:]), AH: ahOf(b[8:]),
		Private: append([]byte(nil), private[:private[MaxPrivate]]...),
	}
}

// ahOf reads struct ib_uverbs_ah_attr.
func ahOf(b []byte) verbs.AHAttr {
	return verbs.AHAttr{
		GRH: verbs.GlobalRoute{
			DGID: verbs.GID(b[:16]), FlowLabel: ne.Uint32(b[16:]), SGIDIndex: int(b[20]), HopLimit: b[21], TrafficClass: b[22],
		},
		DLID: ne.Uint16(b[24:]), SL: b[26], SrcPathBits: b[27], StaticRate: verbs.StaticRate(b[28]),
		IsGlobal: b[29] != 0, PortNum: b[30],
	}
}

// qpAttrOf reads struct ib_uverbs_qp_attr.
func qpAttrOf(b []byte) (verbs.QPAttr, verbs.QPAttrMask) {
	t := b[40+2*ahAttrLen+20:]
	return verbs.QPAttr{
		QPState: verbs.QPState(ne.Uint32(b[4:])), CurQPState: verbs.QPState(ne.Uint32(b[8:])),
		PathMTU: verbs.MTU(ne.Uint32(b[12:])), PathMigState: verbs.MigState(ne.Uint32(b[16:])), QKey: ne.Uint32(b[20:]),
		RQPSN: ne.Uint32(b[24:]), SQPSN: ne.Uint32(b[28:]), DestQPNum: ne.Uint32(b[32:]),
		QPAccessFlags: verbs.AccessFlags(ne.Uint32(b[36:])), AHAttr: ahOf(b[40:]), AltAHAttr: ahOf(b[40+ahAttrLen:]),
		PKeyIndex: ne.Uint16(t), AltPKeyIndex: ne.Uint16(t[2:]), MaxRdAtomic: t[6], MaxDestRdAtomic: t[7], MinRNRTimer: t[8],
		PortNum: t[9], Timeout: t[10], RetryCnt: t[11], RNRRetry: t[12], AltPortNum: t[13], AltTimeout: t[14],
	}, verbs.QPAttrMask(ne.Uint32(b))
}

// Event is struct rdma_ucm_event_resp. Type is a number of enum rdma_cm_event_type.
type Event struct {
	UID    uint64 // of the ID, or of the listener that got a request, or of the group
	ID     uint32 // the kernel's number; of a request that of the new ID
	Type   uint32
	Status int32
	ECE    ECE

	body [udParamLen]byte
}

// Param returns the parameters of an event of a connection.
func (ev *Event) Param() Param { return paramOf(ev.body[:paramLen]) }

// UD returns the parameters of an event of datagrams or of a multicast group.
func (ev *Event) UD() UDParam { return udParamOf(ev.body[:]) }

// SetParam writes the parameters of a connection, as the kernel does. It is for tests, which make events.
func (ev *Event) SetParam(p *Param) { p.put(ev.body[:paramLen]) }

// SetUD is SetParam for the parameters of datagrams.
func (ev *Event) SetUD(p *UDParam) {
	ne.PutUint32(ev.body[:], p.QPN)
	ne.PutUint32(ev.body[4:], p.QKey)
	putAH(ev.body[8:8+ahAttrLen], &p.AH)
	private := ev.body[8+ahAttrLen:]
	private[MaxPrivate] = uint8(min(copy(private[:MaxPrivate], p.Private), MaxPrivate-1))
}

// putAH writes struct ib_uverbs_ah_attr.
func putAH(b []byte, a *verbs.AHAttr) {
	copy(b, a.GRH.DGID[:])
	ne.PutUint32(b[16:], a.GRH.FlowLabel)
	b[20], b[21], b[22] = uint8(a.GRH.SGIDIndex), a.GRH.HopLimit, a.GRH.TrafficClass
	ne.PutUint16(b[24:], a.DLID)
	copy(b[26:], []byte{a.SL, a.SrcPathBits, uint8(a.StaticRate), bit(a.IsGlobal), a.PortNum})
}

// eventOf reads an event.
func eventOf(b []byte) *Event {
	ev := &Event{
		UID: ne.Uint64(b), ID: ne.Uint32(b[8:]), Type: ne.Uint32(b[12:]), Status: int32(ne.Uint32(b[16:])),
		ECE: ECE{ne.Uint32(b[eventECE:]), ne.Uint32(b[eventECE+4:])},
	}
	copy(ev.body[:], b[eventBody:])
	return ev
}

// Place is where an ID is: its device and its addresses (struct rdma_ucm_query_addr_resp).
type Place struct {
	GUID          verbs.GUID // of the device; zero if the ID is bound to none
	Port          uint8
	PKey          uint16
	Local, Remote netip.AddrPort
}

// placeOf reads a Place.
func placeOf(b []byte) Place {
	return Place{
		GUID: verbs.GUID(b[:8]), Port: b[8], PKey: ne.Uint16(b[10:]),
		Local: addrOf(b[16:]), Remote: addrOf(b[16+sockaddrLen:]),
	}
}

// Levels of options (RDMA_OPTION_*).
const (
	LevelID = 0
	LevelIB = 1
)

// Options of LevelID.
const (
	OptionTOS        = 0 // 1 byte
	OptionReuseAddr  = 1 // 4 bytes
	OptionAFOnly     = 2 // 4 bytes
	OptionAckTimeout = 3 // 1 byte
)

// OptionPath is the option of LevelIB: a path instead of ResolveRoute, 72 bytes. EventRouteResolved follows.
const OptionPath = 1
