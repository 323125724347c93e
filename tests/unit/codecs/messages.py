"""Protobuf message classes, made without protoc."""

from __future__ import annotations

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["Address", "Customer", "Order"]

_TYPES = descriptor_pb2.FieldDescriptorProto


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    customer = file.message_type.add(name="Customer")
    customer.field.add(name="name", number=1, type=_TYPES.TYPE_STRING, label=_TYPES.LABEL_OPTIONAL)
    address = customer.nested_type.add(name="Address")
    address.field.add(name="street", number=1, type=_TYPES.TYPE_STRING, label=_TYPES.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=_TYPES.TYPE_STRING, label=_TYPES.LABEL_OPTIONAL)
    order.field.add(name="total", number=2, type=_TYPES.TYPE_INT64, label=_TYPES.LABEL_OPTIONAL)
    return file


_pool = descriptor_pool.DescriptorPool()
_pool.Add(_file())


def _of(name: str) -> type:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"shop.{name}"))


Customer, Address, Order = _of("Customer"), _of("Customer.Address"), _of("Order")
