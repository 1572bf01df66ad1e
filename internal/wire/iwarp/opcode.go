package iwarp

import "fmt"

// Opcode is an operation of RDMAP, 4 bits.
type Opcode uint8

// The operations.
const (
	Write          Opcode = 0
	ReadRequest    Opcode = 1
	ReadResponse   Opcode = 2
	Send           Opcode = 3
	SendInv        Opcode = 4 // and invalidate an STag of the receiver
	SendSE         Opcode = 5 // with a solicited event
	SendSEInv      Opcode = 6
	TerminateOp    Opcode = 7
	Immediate      Opcode = 8 // RFC 7306, as the operations below
	ImmediateSE    Opcode = 9
	AtomicRequest  Opcode = 10
	AtomicResponse Opcode = 11

	opcodes = 12
)

// The queues of untagged messages.
const (
	QueueSend      = 0 // SENDs and immediate data
	QueueRequest   = 1 // Read Requests and Atomic Requests
	QueueTerminate = 2
	QueueAtomic    = 3 // Atomic Responses

	Queues = 4
)

// Info has the fixed properties of an operation.
type Info struct {
	Name   string
	Tagged bool
	Queue  uint32 // of an untagged message
	Len    int    // the length of its data in bytes; 0: any
	Inv    bool   // it invalidates an STag
	SE     bool   // it asks for a solicited event
}

var infos = [opcodes]Info{
	Write:          {Name: "Write", Tagged: true},
	ReadRequest:    {Name: "Read Request", Queue: QueueRequest, Len: ReadRequestLen},
	ReadResponse:   {Name: "Read Response", Tagged: true},
	Send:           {Name: "Send", Queue: QueueSend},
	SendInv:        {Name: "Send with Invalidate", Queue: QueueSend, Inv: true},
	SendSE:         {Name: "Send with SE", Queue: QueueSend, SE: true},
	SendSEInv:      {Name: "Send with SE and Invalidate", Queue: QueueSend, Inv: true, SE: true},
	TerminateOp:    {Name: "Terminate", Queue: QueueTerminate},
	Immediate:      {Name: "Immediate Data", Queue: QueueSend, Len: ImmediateLen},
	ImmediateSE:    {Name: "Immediate Data with SE", Queue: QueueSend, Len: ImmediateLen, SE: true},
	AtomicRequest:  {Name: "Atomic Request", Queue: QueueRequest, Len: AtomicRequestLen},
	AtomicResponse: {Name: "Atomic Response", Queue: QueueAtomic, Len: AtomicResponseLen},
}

// Info returns the fixed properties of the operation, nil if it is unknown.
func (o Opcode) Info() *Info {
	if o >= opcodes {
		return nil
	}
	return &infos[o]
}

// String returns the operation's name.
func (o Opcode) String() string {
	if in := o.Info(); in != nil {
		return in.Name
	}
	return fmt.Sprintf("RDMAP opcode %d", uint8(o))
}
